use super::*;
use crate::turn::context::Interrupt;
use pretty_assertions::assert_eq;
use std::sync::Arc;
use tokio::sync::watch;

fn roles(letters: &str) -> Vec<Option<String>> {
    letters
        .chars()
        .map(|letter| match letter {
            's' => Some("system".to_owned()),
            'u' => Some("user".to_owned()),
            'a' => Some("assistant".to_owned()),
            't' => Some("tool".to_owned()),
            _ => None,
        })
        .collect()
}

fn json(value: &serde_json::Value) -> RawJson {
    RawJson::from_value(value).unwrap()
}

#[test]
fn the_middle_lies_between_the_first_prompt_and_the_last_messages() {
    for (history, expected) in [
        ("", None),
        ("ua", None),
        ("uaua", None),
        ("uauaua", Some(1..2)),
        ("uauauaua", Some(1..4)),
        ("uauauauaua", Some(1..6)),
        ("suauauaua", Some(2..5)),
        ("ssuauauauaua", Some(3..8)),
        // A prompt whose answer took tools stays whole behind the cut.
        ("uauatatata", None),
        ("uauauatatata", Some(1..4)),
        ("uatatatatauaua", Some(1..10)),
        // No first prompt: an answer, or a summary, stands at the beginning.
        ("auauaua", Some(0..3)),
        ("aaaaaaaa", None),
        ("ssssssssss", None),
        ("????????", None),
        ("u??????u???", Some(1..7)),
    ] {
        let found = middle(&roles(history));
        // One message is not worth replacing by one.
        let expected = expected.filter(|range: &Range<usize>| range.len() >= 2);
        assert_eq!(found, expected, "{history}");
        if let Some(range) = found {
            assert!(history.len() - range.end >= TAIL, "{history}");
            assert_eq!(history.chars().nth(range.end), Some('u'), "{history}");
        }
    }
}

#[test]
fn the_prompt_has_the_conversation_and_the_topic() {
    let call = serde_json::json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]});
    let messages = [
        json(&serde_json::json!({"role": "user", "content": "where\nis it"})),
        json(&call),
        json(&serde_json::json!({"role": "tool", "content": [{"text": "here"}]})),
    ];
    let text = prompt(&messages, Some("the door"));
    let (order, conversation) = text.split_once("----------\n").unwrap();
    assert!(order.ends_with("Above all keep what has to do with: the door\n\n"), "{order}");
    assert_eq!(
        conversation,
        format!(
            "[user] where\nis it\n[assistant] {}\n[tool] {}\n----------\n",
            messages[1].as_str(),
            messages[2].as_str()
        )
    );
    assert!(!prompt(&messages, None).contains("Above all"));
}

#[test]
fn of_long_messages_beginning_and_end_are_shown_and_the_prompt_is_bounded() {
    let text = format!("begin{}end", "é".repeat(100_000));
    let shown = cut(&text, 1000);
    assert!(shown.starts_with("begin") && shown.ends_with("end"), "{shown}");
    assert!(shown.len() < 1100 && shown.contains(" bytes left out …] "), "{}", shown.len());
    let long = json(&serde_json::json!({"role": "user", "content": "x".repeat(20_000)}));
    for count in [1, 100, 1000] {
        let bytes = prompt(&vec![long.clone(); count], None).len();
        assert!(bytes < 2 * TRANSCRIPT_BYTES, "{count}: {bytes}");
    }
}

#[tokio::test]
async fn without_an_agent_the_compression_fails_and_says_so() {
    let (_stop, flag) = watch::channel(false);
    let history = vec![json(&serde_json::json!({"role": "user", "content": "preserved"}))];
    let request = CompressionRequest {
        sid: "s".into(),
        session_key: "k".to_owned(),
        history: Arc::new(history),
        focus: None,
        model: None,
        interrupt: Interrupt::new(flag),
        agent: None,
    };
    let result = HeadAndTail.compress(request).await;
    assert_eq!(result, Err(CompressionError::new("this session has no agent to write a summary")));
}
