//! What controls change of a session beside its history: key, model, personality, system prompt. Pure.

use crate::command::{FrameFields, text};
use serde::Deserialize;
use turnhost_protocol::frame::ControlAck;
use turnhost_protocol::{RawJson, Route, SessionId};

/// Keeps the fields of the seed as the session is behind this control. False if the ack does not tell a setting that it
/// may have changed.
pub(super) fn follow(
    fields: &mut FrameFields,
    sid: &SessionId,
    route: Option<Route>,
    ack: &ControlAck,
) -> bool {
    if let Some(key) = ack.session_key.as_deref().filter(|key| !key.is_empty()) {
        let before = text(fields, "session_key").unwrap_or_else(|| sid.as_str().to_owned());
        if key != before {
            set(fields, "parent_session_key", Some(&before));
        }
        set(fields, "session_key", Some(key));
    }
    match route {
        Some(Route::SlashModel) => model(fields, ack),
        Some(Route::SlashPersonality) => setting(fields, "personality", ack),
        Some(Route::SlashPrompt) => setting(fields, "system_prompt", ack),
        Some(
            Route::PromptSubmit
            | Route::SessionInterrupt
            | Route::ReloadMcp
            | Route::SessionSave
            | Route::SessionCompress
            | Route::PromptSubmitTruncate
            | Route::SlashCompress
            | Route::SessionReset
            | Route::SessionHistoryReload
            | Route::SlashRetry,
        )
        | None => true,
    }
}

/// From the result, or, as the public peer has none, from what it says of the session.
fn model(fields: &mut FrameFields, ack: &ControlAck) -> bool {
    #[derive(Deserialize)]
    struct Model {
        model: Option<String>,
        provider: Option<String>,
    }
    let read = |json: &Option<RawJson>| json.as_ref().and_then(|json| json.read::<Model>().ok());
    let Some(Model { model: Some(model), provider }) = read(&ack.result).or_else(|| read(&ack.session_info))
    else {
        return false;
    };
    set(fields, "model", Some(&model));
    set(fields, "provider", provider.as_deref());
    true
}

/// The result's field of this name; null there takes it out here.
fn setting(fields: &mut FrameFields, name: &str, ack: &ControlAck) -> bool {
    let result = ack.result.as_ref().and_then(|result| result.read::<FrameFields>().ok());
    let Some(value) = result.and_then(|mut result| result.remove(name)) else { return false };
    match value.read::<Option<String>>() {
        Ok(value) => set(fields, name, value.as_deref()),
        Err(_) => return false,
    }
    true
}

fn set(fields: &mut FrameFields, name: &str, value: Option<&str>) {
    match value.and_then(|value| RawJson::from_value(value).ok()) {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
}
