//! The controls: one function each.

use super::Host;
use crate::session::Session;
use crate::session::gate::Refusal;
use serde::Serialize;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use turnhost_protocol::frame::{Control, ControlAck, ControlError, ReloadMcp};
use turnhost_protocol::{RawJson, RequestId, Route, RouteClass, SessionId};

/// A `session.save` whose file is being written.
#[derive(Debug)]
pub(crate) struct OpenSave {
    sid: SessionId,
    request_id: RequestId,
}

impl Host {
    pub(super) fn control(&mut self, frame: Control) {
        if let Err(message) = self.try_control(&frame) {
            self.out.answer(ControlError {
                sid: frame.sid,
                request_id: frame.request_id.unwrap_or_default(),
                message,
            });
        }
    }

    pub(super) fn reload_mcp(&mut self, frame: ReloadMcp) {
        let message = "not supported".to_owned();
        self.out.answer(ControlError {
            sid: frame.sid,
            request_id: frame.request_id.unwrap_or_default(),
            message,
        });
    }

    fn try_control(&mut self, frame: &Control) -> Result<(), String> {
        let name = frame.route_name.as_deref().unwrap_or("");
        let route = Route::from_name(name).ok_or_else(|| format!("unclassified route: {name}"))?;
        let id = self.number();
        let session =
            frame.sid.as_ref().and_then(|sid| self.sessions.get_mut(sid)).ok_or("session not found")?;
        session.gate.begin_control(id, route.class()).map_err(|refusal| match (route, refusal) {
            (Route::PromptSubmit, Refusal::TurnPath) => "use turn.start".to_owned(),
            (Route::SessionInterrupt, Refusal::TurnPath) => "use interrupt".to_owned(),
            (_, refusal) => refusal.message().to_owned(),
        })?;
        let sid = session.sid.clone();
        let request_id = frame.request_id.clone().unwrap_or_default();
        let result = match route {
            Route::SessionSave => {
                let folder = self.options.home.join("sessions").join("saved");
                let name = save_name(&folder, session, frame.params.as_ref());
                let content = saved(session);
                self.open_saves.insert(id, OpenSave { sid, request_id });
                self.pool.save(id, move || write_new(folder, &name?, &content?));
                return Ok(());
            }
            Route::SessionReset => Ok(reset(session)),
            Route::PromptSubmit
            | Route::SessionInterrupt
            | Route::ReloadMcp
            | Route::SessionCompress
            | Route::PromptSubmitTruncate
            | Route::SlashModel
            | Route::SlashPersonality
            | Route::SlashPrompt
            | Route::SlashCompress
            | Route::SessionHistoryReload
            | Route::SlashRetry => Err("not supported".to_owned()),
        };
        session.gate.finish(id);
        if let Ok((output, result)) = &result {
            self.acknowledge(route, &sid, request_id, output.clone(), result.clone());
        }
        result.map(|_| ())
    }

    pub(super) fn on_saved(&mut self, id: u64, result: io::Result<PathBuf>) {
        #[derive(Serialize)]
        struct Saved<'a> {
            file: std::borrow::Cow<'a, str>,
        }
        let Some(save) = self.open_saves.remove(&id) else { return };
        if let Some(session) = self.sessions.get_mut(&save.sid) {
            session.gate.finish(id);
        }
        match result {
            Ok(file) => {
                let output = format!("saved to {}", file.display());
                let result = RawJson::from_value(&Saved { file: file.to_string_lossy() }).ok();
                self.acknowledge(Route::SessionSave, &save.sid, save.request_id, output, result);
            }
            Err(error) => self.out.answer(ControlError {
                sid: Some(save.sid),
                request_id: save.request_id,
                message: format!("session.save: {error}"),
            }),
        }
    }

    /// Answers the saves that a stop cannot wait for.
    pub(super) fn give_up_saves(&mut self) {
        for save in std::mem::take(&mut self.open_saves).into_values() {
            self.out.answer(ControlError {
                sid: Some(save.sid),
                request_id: save.request_id,
                message: Refusal::Closing.message().to_owned(),
            });
        }
    }

    /// Answers a control with the session as it stands now.
    fn acknowledge(
        &mut self,
        route: Route,
        sid: &SessionId,
        request_id: RequestId,
        output: String,
        result: Option<RawJson>,
    ) {
        let Some(session) = self.sessions.get(sid) else { return };
        let changes_history = route.class() == RouteClass::IdleGated;
        if changes_history {
            // The end of an earlier turn may still wait for the pipe; this answer must not be read before it.
            self.out.lanes.promote(session.number);
        }
        let agent = self.agent_name(session);
        self.out.answer(ControlAck {
            sid: Some(sid.clone()),
            request_id,
            route_name: Some(route.name().to_owned()),
            output: Some(output),
            result,
            session_key: Some(session.history.session_key().to_owned()),
            history_version: Some(session.history.version()),
            message_count: Some(session.history.message_count()),
            session_info: session.info(&agent, &session.cwd),
            messages: changes_history.then(|| session.history.snapshot().to_vec()),
            omitted: None,
        });
    }

    /// The agent that the session's next turn gets if it names none.
    pub(super) fn agent_name(&self, session: &Session) -> String {
        session
            .agent
            .as_ref()
            .map(|agent| agent.name.as_str())
            .or_else(|| self.agents.default_name())
            .unwrap_or_default()
            .to_owned()
    }
}

fn reset(session: &mut Session) -> (String, Option<RawJson>) {
    #[derive(Serialize)]
    struct Reset<'a> {
        session_key: &'a str,
        parent_session_key: Option<&'a str>,
    }
    session.history.reset(uuid::Uuid::now_v7().simple().to_string());
    let (session_key, parent_session_key) = (session.history.session_key(), session.history.parent_key());
    let result = RawJson::from_value(&Reset { session_key, parent_session_key }).ok();
    (format!("new session {session_key}"), result)
}

/// `params.path`, which must lead to a file inside `folder`, else a new name; relative to `folder`.
fn save_name(folder: &Path, session: &Session, params: Option<&RawJson>) -> io::Result<PathBuf> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Params {
        path: Option<String>,
    }
    let params = match params {
        Some(params) => params.read::<Option<Params>>().map_err(io::Error::other)?.unwrap_or_default(),
        None => Params::default(),
    };
    let Some(path) = params.path.filter(|path| !path.is_empty()) else {
        let key: String = session
            .history
            .session_key()
            .chars()
            .take(80)
            .map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' })
            .collect();
        return Ok(format!("{key}-{}.json", uuid::Uuid::now_v7().simple()).into());
    };
    // The path that an earlier save answered is a path inside as well.
    let name = Path::new(&path).strip_prefix(folder).unwrap_or_else(|_| Path::new(&path));
    let stays_inside = name.components().all(|part| match part {
        Component::Normal(_) | Component::CurDir => true,
        Component::Prefix(_) | Component::RootDir | Component::ParentDir => false,
    });
    if stays_inside && name.file_name().is_some() {
        return Ok(name.to_owned());
    }
    let problem = format!("params.path must name a file inside {}, without `..`: {path}", folder.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// The content of a saved session.
fn saved(session: &Session) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Saved<'a> {
        sid: &'a SessionId,
        session_key: &'a str,
        parent_session_key: Option<&'a str>,
        saved_at_ms: u64,
        model: Option<&'a str>,
        provider: Option<&'a str>,
        cwd: std::borrow::Cow<'a, str>,
        history_version: u64,
        messages: &'a [RawJson],
    }
    let messages = session.history.snapshot();
    let saved = Saved {
        sid: &session.sid,
        session_key: session.history.session_key(),
        parent_session_key: session.history.parent_key(),
        saved_at_ms: super::stops::unix_ms(),
        model: session.model.as_deref(),
        provider: session.provider.as_deref(),
        cwd: session.cwd.to_string_lossy(),
        history_version: session.history.version(),
        messages: &messages,
    };
    let mut content = serde_json::to_vec(&saved)?;
    content.push(b'\n');
    Ok(content)
}

/// Writes a file below `folder` whole or not at all, readable by its owner alone. An old file or link of that name is
/// replaced; no link is followed on the way.
fn write_new(mut folder: PathBuf, name: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let file = folder.join(name);
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let mut make = std::fs::DirBuilder::new();
    make.mode(0o700).recursive(true).create(&folder).map_err(failed)?;
    for part in name.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        make.recursive(false).create(&folder).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists if std::fs::symlink_metadata(&folder)?.is_dir() => Ok(()),
            _ => Err(failed(error)),
        })?;
    }
    let unfinished = folder.join(format!(".{}.unfinished", uuid::Uuid::new_v4().simple()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut out| out.write_all(content).and_then(|()| out.sync_all()))
        .and_then(|()| std::fs::rename(&unfinished, &file));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&unfinished);
        return Err(failed(error));
    }
    Ok(file)
}
