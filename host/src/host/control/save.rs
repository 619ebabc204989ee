//! `session.save`: the session as a JSON file.

use super::arguments::param;
use super::{Done, OpenControl};
use crate::host::Host;
use crate::session::Session;
use serde::Serialize;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use turnhost_protocol::{RawJson, SessionId};

/// What writes the file, on a thread that may block.
pub(super) fn writer(
    home: &Path,
    session: &Session,
    params: Option<&RawJson>,
) -> impl FnOnce() -> io::Result<PathBuf> + Send + 'static {
    let folder = home.join("sessions").join("saved");
    let name = save_name(&folder, session, params);
    let content = saved(session);
    move || write_new(folder, &name?, &content?)
}

impl Host {
    pub(in crate::host) fn on_saved(&mut self, id: u64, result: io::Result<PathBuf>) {
        #[derive(Serialize)]
        struct Saved<'a> {
            file: std::borrow::Cow<'a, str>,
        }
        let Some(OpenControl { sid, request_id, route }) = self.open_controls.remove(&id) else { return };
        if let Some(session) = self.sessions.get_mut(&sid) {
            session.gate.finish(id);
        }
        let done = result.map_err(|error| error.to_string()).map(|file| {
            Done::new(format!("saved to {}", file.display()), &Saved { file: file.to_string_lossy() })
        });
        self.answer_control(route, &sid, request_id, done);
    }
}

/// `params.path`, which must lead to a file inside `folder`, else a new name; relative to `folder`.
fn save_name(folder: &Path, session: &Session, params: Option<&RawJson>) -> io::Result<PathBuf> {
    let wrong = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    let path = match param(params, "path").map_err(wrong)? {
        Some(path) => {
            Some(path.read::<String>().map_err(|_| wrong("params.path must be a text".to_owned()))?)
        }
        None => None,
    };
    let Some(path) = path.filter(|path| !path.is_empty()) else {
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
        system_prompt: Option<&'a str>,
        personality: Option<&'a str>,
        cwd: std::borrow::Cow<'a, str>,
        history_version: u64,
        messages: &'a [RawJson],
    }
    let messages = session.history.snapshot();
    let saved = Saved {
        sid: &session.sid,
        session_key: session.history.session_key(),
        parent_session_key: session.history.parent_key(),
        saved_at_ms: crate::host::stops::unix_ms(),
        model: session.model.as_deref(),
        provider: session.provider.as_deref(),
        system_prompt: session.own_prompt.as_deref(),
        personality: session.personality.as_deref(),
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
