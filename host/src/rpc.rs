//! A turn as the JSON-RPC events of front ends that know no other frames (`--rpc-events`). Pure.

use crate::session::Usage;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The event that mirrors a turn's `event`, and its payload; `None` for kinds that those front ends do not have.
/// `tools` holds the names of the calls that are open, at most `most`.
pub(crate) fn mirrored(
    fields: &Map<String, Value>,
    tools: &mut BTreeMap<String, String>,
    most: usize,
) -> Option<(&'static str, Value)> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("kind") {
        "tool_call" => {
            let (id, name) = (text("tool_call_id"), text("name"));
            if tools.len() < most {
                tools.insert(id.to_owned(), name.to_owned());
            }
            let args = fields.get("args").cloned().unwrap_or(Value::Null);
            let payload = json!({ "tool_id": id, "name": name, "context": text("title"), "args": args });
            Some(("tool.start", payload))
        }
        "tool_call_update" if matches!(text("status"), "completed" | "failed") => {
            let id = text("tool_call_id");
            let name = tools.remove(id).unwrap_or_default();
            let result = fields.get("content").cloned().unwrap_or(Value::Null);
            let exit_code = fields.get("exit_code").cloned().unwrap_or(Value::Null);
            let status = text("status");
            let payload = json!({ "tool_id": id, "name": name, "result": result, "exit_code": exit_code, "status": status });
            Some(("tool.complete", payload))
        }
        "approval_request" => {
            let mut payload = fields.clone();
            payload.remove("kind");
            Some(("approval.request", Value::Object(payload)))
        }
        // Kinds are an open set here: agents may send others, and these front ends draw none of them.
        _ => None,
    }
}

/// The payload of `message.complete`; `status` is `complete`, `interrupted` or `error`.
pub(crate) fn message_complete(text: &str, status: &str, error: Option<&str>, usage: Usage) -> Value {
    let mut payload = json!({ "text": text, "status": status, "usage": usage });
    if let Some(message) = error {
        payload["message"] = message.into();
        if text.is_empty() {
            payload["text"] = format!("Error: {message}").into();
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(tools: &mut BTreeMap<String, String>, event: Value) -> Option<(&'static str, Value)> {
        mirrored(event.as_object().unwrap(), tools, 2)
    }

    #[test]
    fn tool_calls_become_tool_start_and_tool_complete_with_the_name_in_both() {
        let mut tools = BTreeMap::new();
        let start =
            json!({"kind": "tool_call", "tool_call_id": "c", "name": "sh", "title": "ls", "args": {"a": 1}});
        let expected = json!({"tool_id": "c", "name": "sh", "context": "ls", "args": {"a": 1}});
        assert_eq!(mirror(&mut tools, start), Some(("tool.start", expected)));
        let update = |status: &str| json!({"kind": "tool_call_update", "tool_call_id": "c", "status": status, "content": "x", "exit_code": 3});
        assert_eq!(mirror(&mut tools, update("running")), None);
        let expected =
            json!({"tool_id": "c", "name": "sh", "result": "x", "exit_code": 3, "status": "failed"});
        assert_eq!(mirror(&mut tools, update("failed")), Some(("tool.complete", expected)));
        assert!(tools.is_empty());
    }

    #[test]
    fn an_approval_request_keeps_its_fields_and_other_kinds_are_not_mirrored() {
        let mut tools = BTreeMap::new();
        let ask = json!({"kind": "approval_request", "approval_id": "a", "choices": ["once"]});
        let expected = json!({"approval_id": "a", "choices": ["once"]});
        assert_eq!(mirror(&mut tools, ask), Some(("approval.request", expected)));
        for kind in ["thought", "plan", "usage", "approval_resolved", "status", "busy_until", "own"] {
            assert_eq!(mirror(&mut tools, json!({"kind": kind})), None, "{kind}");
        }
    }

    #[test]
    fn a_failed_message_says_its_error_as_text_if_nothing_was_streamed() {
        let complete = |text| message_complete(text, "error", Some("no model"), Usage::default());
        assert_eq!(complete("")["text"], "Error: no model");
        assert_eq!(complete("half")["text"], "half");
        assert_eq!(complete("half")["message"], "no model");
    }
}
