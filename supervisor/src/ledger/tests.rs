use super::*;
use pretty_assertions::assert_eq;
use serde_json::json;

fn message(content: &str) -> RawJson {
    RawJson::from_value(&json!({"role": "user", "content": content})).unwrap()
}

fn messages(contents: &[&str]) -> Vec<RawJson> {
    contents.iter().map(|content| message(content)).collect()
}

fn seed(contents: &[&str]) -> SeedRecord {
    let fields = RawJson::parse(r#"{"sid":"s","session_key":"k1"}"#).unwrap().read().unwrap();
    SeedRecord { fields, history: messages(contents) }
}

fn seeded(bounds: Bounds, contents: &[&str]) -> Ledger {
    let mut ledger = Ledger::new(bounds);
    ledger.seeded(&"s".into(), 1, seed(contents));
    ledger
}

/// The history that a new host would get of `s`; `None` if that is not known.
fn history(ledger: &Ledger) -> Option<Vec<RawJson>> {
    let (_, reseed) = ledger.records().find(|(sid, _)| sid.as_str() == "s").expect("there is a record");
    match reseed {
        Reseed::Whole(record) => Some(record.history.clone()),
        Reseed::Incomplete(_) => None,
    }
}

fn key(ledger: &Ledger) -> String {
    let (_, reseed) = ledger.records().next().expect("there is a record");
    let (Reseed::Whole(record) | Reseed::Incomplete(record)) = reseed;
    record.fields["session_key"].read().unwrap()
}

fn ack(route: &str) -> ControlAck {
    ControlAck { request_id: "c".into(), route_name: Some(route.to_owned()), ..ControlAck::default() }
}

#[test]
fn the_history_is_the_seed_and_what_turns_appended() {
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.turn_ended(&"s".into(), 1, Some(&messages(&["b", "c"])));
    ledger.turn_ended(&"s".into(), 1, Some(&[]));
    assert_eq!(history(&ledger), Some(messages(&["a", "b", "c"])));
}

#[test]
fn a_turn_that_does_not_tell_what_it_appended_makes_it_incomplete_until_the_next_seed() {
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.turn_ended(&"s".into(), 1, None);
    assert_eq!(history(&ledger), None);
    ledger.turn_ended(&"s".into(), 1, Some(&messages(&["b"])));
    assert_eq!(history(&ledger), None);
    ledger.seeded(&"s".into(), 1, seed(&["z"]));
    assert_eq!(history(&ledger), Some(messages(&["z"])));
}

#[test]
fn what_an_earlier_host_did_changes_nothing() {
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.reseeded(&"s".into(), 2, None);
    ledger.turn_ended(&"s".into(), 1, Some(&messages(&["old"])));
    ledger.turn_ended(&"s".into(), 1, None);
    ledger.control_acked(&"s".into(), 1, &ack("session.reset"));
    assert_eq!(history(&ledger), Some(messages(&["a"])));
}

#[test]
fn controls_change_the_history_by_what_they_tell() {
    for (acked, expected) in [
        (ack("session.save"), Some(messages(&["a"]))),
        (ack("reload.mcp"), Some(messages(&["a"]))),
        (ack("session.reset"), Some(Vec::new())),
        (ack("prompt.submit.truncate"), None),
        (ack("slash.model"), None),
        (ack("of.another.host"), None),
        (ControlAck { messages: Some(messages(&["x"])), ..ack("slash.retry") }, Some(messages(&["x"]))),
        (
            ControlAck {
                result: Some(
                    RawJson::from_value(
                        &json!({"status": "compressed", "messages": [{"role": "user", "content": "y"}]}),
                    )
                    .unwrap(),
                ),
                ..ack("session.compress")
            },
            Some(messages(&["y"])),
        ),
    ] {
        let mut ledger = seeded(Bounds::default(), &["a"]);
        ledger.control_acked(&"s".into(), 1, &acked);
        assert_eq!(history(&ledger).map(|found| found.len()), expected.as_ref().map(Vec::len), "{acked:?}");
        if acked.messages.is_some() || acked.result.is_none() {
            assert_eq!(history(&ledger), expected);
        }
    }
}

#[test]
fn a_control_moves_the_session_key() {
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.control_acked(
        &"s".into(),
        1,
        &ControlAck { session_key: Some("k2".to_owned()), ..ack("session.reset") },
    );
    assert_eq!(key(&ledger), "k2");
    assert_eq!(history(&ledger), Some(Vec::new()));
}

fn field(ledger: &Ledger, name: &str) -> Option<String> {
    let (_, reseed) = ledger.records().next().expect("there is a record");
    let (Reseed::Whole(record) | Reseed::Incomplete(record)) = reseed;
    record.fields.get(name).map(|value| value.read().unwrap())
}

fn ack_of(route: &str, result: &serde_json::Value) -> ControlAck {
    ControlAck {
        result: Some(RawJson::from_value(result).unwrap()),
        messages: Some(messages(&["a"])),
        ..ack(route)
    }
}

#[test]
fn a_new_session_key_makes_the_old_one_its_parent() {
    let sid = SessionId::from("s");
    let mut ledger = seeded(Bounds::default(), &["a"]);
    let with_key = |key: &str| ControlAck { session_key: Some(key.to_owned()), ..ack("session.save") };
    ledger.control_acked(&sid, 1, &with_key("k1"));
    assert_eq!(field(&ledger, "parent_session_key"), None, "the same key");
    ledger.control_acked(&sid, 1, &with_key("k2"));
    assert_eq!(
        (key(&ledger), field(&ledger, "parent_session_key")),
        ("k2".to_owned(), Some("k1".to_owned()))
    );
    ledger.control_acked(&sid, 1, &with_key("k2"));
    assert_eq!(field(&ledger, "parent_session_key").as_deref(), Some("k1"));

    let mut ledger = Ledger::new(Bounds::default());
    let fields = RawJson::parse(r#"{"sid":"s"}"#).unwrap().read().unwrap();
    ledger.seeded(&sid, 1, SeedRecord { fields, history: Vec::new() });
    ledger.control_acked(&sid, 1, &with_key("k2"));
    assert_eq!(
        field(&ledger, "parent_session_key").as_deref(),
        Some("s"),
        "a session without a key has its sid"
    );
}

#[test]
fn model_personality_and_prompt_are_kept_as_the_controls_set_them() {
    let sid = SessionId::from("s");
    let mut ledger = seeded(Bounds::default(), &["a"]);
    let settings = |ledger: &Ledger| {
        ["model", "provider", "personality", "system_prompt"].map(|name| field(ledger, name))
    };
    let text = |text: &str| Some(text.to_owned());
    ledger.control_acked(&sid, 1, &ack_of("slash.model", &json!({"model": "m", "provider": "p"})));
    ledger.control_acked(&sid, 1, &ack_of("slash.personality", &json!({"personality": "judge"})));
    ledger.control_acked(&sid, 1, &ack_of("slash.prompt", &json!({"system_prompt": "Be kind."})));
    assert_eq!(settings(&ledger), [text("m"), text("p"), text("judge"), text("Be kind.")]);
    assert_eq!(history(&ledger), Some(messages(&["a"])));
    ledger.control_acked(&sid, 1, &ack_of("slash.model", &json!({"model": "n", "provider": null})));
    ledger.control_acked(&sid, 1, &ack_of("slash.personality", &json!({"personality": null})));
    ledger.control_acked(&sid, 1, &ack_of("slash.prompt", &json!({"system_prompt": null})));
    assert_eq!(settings(&ledger), [text("n"), None, None, None]);
    let held: usize =
        ledger.sessions.values().filter_map(|entry| entry.record.as_ref()).map(Record::all_bytes).sum();
    assert_eq!(ledger.bytes, held);
}

#[test]
fn a_setting_that_the_ack_does_not_tell_makes_the_session_incomplete() {
    for unclear in [
        ControlAck { messages: Some(messages(&["a"])), ..ack("slash.prompt") },
        ControlAck { messages: Some(messages(&["a"])), ..ack("slash.model") },
        ack_of("slash.personality", &json!({"other": 1})),
        ack_of("slash.personality", &json!({"personality": 1})),
        ack_of("slash.model", &json!({"provider": "p"})),
        ack_of("slash.prompt", &json!("text")),
    ] {
        let mut ledger = seeded(Bounds::default(), &["a"]);
        ledger.control_acked(&"s".into(), 1, &unclear);
        assert_eq!(history(&ledger), None, "{unclear:?}");
    }
    let mut ledger = seeded(Bounds::default(), &["a"]);
    let info = RawJson::parse(r#"{"model":"m","usage":{}}"#).unwrap();
    let of_the_peer =
        ControlAck { session_info: Some(info), messages: Some(messages(&["a"])), ..ack("slash.model") };
    ledger.control_acked(&"s".into(), 1, &of_the_peer);
    assert_eq!((field(&ledger, "model").as_deref(), history(&ledger)), (Some("m"), Some(messages(&["a"]))));
}

#[test]
fn a_history_over_the_bound_is_not_kept() {
    let bounds = Bounds { session_bytes: 100, ..Bounds::default() };
    let mut ledger = seeded(bounds, &["a"]);
    ledger.turn_ended(&"s".into(), 1, Some(&messages(&["x".repeat(100).as_str()])));
    assert_eq!(history(&ledger), None);
    assert_eq!(ledger.bytes, bytes_of_fields(&seed(&[]).fields), "the seed's other fields stay");
}

#[test]
fn fields_of_a_seed_count_as_its_history_does() {
    let big = |sid: &str, bytes: usize| {
        let mut record = seed(&["a"]);
        record.fields.insert("attached".to_owned(), RawJson::from_value(&"x".repeat(bytes)).unwrap());
        (SessionId::from(sid), record)
    };
    let mut ledger = Ledger::new(Bounds { session_bytes: 1000, total_bytes: 3000, ..Bounds::default() });
    let (sid, record) = big("s", 2000);
    ledger.seeded(&sid, 1, record);
    assert_eq!(ledger.bytes, 0, "more than a session may have");
    assert_eq!(ledger.records().count(), 0);
    assert_eq!(ledger.turn_begins(&sid, 1, false), Beginning::Continued, "its host has it");
    assert_eq!(ledger.turn_begins(&sid, 2, false), Beginning::Lost, "the next one has not");
    for n in 0..100 {
        let (sid, record) = big(&n.to_string(), 800);
        ledger.seeded(&sid, 1, record);
        assert!(ledger.bytes <= 3000, "{}", ledger.bytes);
    }
    assert_eq!(ledger.records().count(), 3);
    for n in 0..100 {
        ledger.control_acked(
            &"99".into(),
            1,
            &ControlAck { session_key: Some("k".repeat(n)), ..ack("session.save") },
        );
    }
    let held: usize =
        ledger.sessions.values().filter_map(|entry| entry.record.as_ref()).map(Record::all_bytes).sum();
    assert_eq!(ledger.bytes, held);
}

#[test]
fn of_too_many_bytes_the_least_recently_used_session_is_given_up() {
    let bounds = Bounds { total_bytes: 200, ..Bounds::default() };
    let mut ledger = Ledger::new(bounds);
    let big = "x".repeat(30);
    for sid in ["a", "s", "b"] {
        ledger.seeded(&sid.into(), 1, seed(&[&big]));
        ledger.turn_begins(&"s".into(), 1, false);
    }
    let whole: Vec<&str> = {
        let mut whole: Vec<&str> = ledger
            .records()
            .filter(|(_, reseed)| matches!(reseed, Reseed::Whole(_)))
            .map(|(sid, _)| sid.as_str())
            .collect();
        whole.sort_unstable();
        whole
    };
    assert_eq!(whole, ["b", "s"]);
}

#[test]
fn sessions_are_bounded() {
    let mut ledger = Ledger::new(Bounds { sessions: 10, ..Bounds::default() });
    for n in 0..1000 {
        let sid = SessionId::from(n.to_string());
        ledger.turn_begins(&sid, 1, false);
        ledger.seeded(&sid, 1, seed(&["a"]));
    }
    assert_eq!(ledger.sessions.len(), 10);
    let each = message("a").as_str().len() + bytes_of_fields(&seed(&[]).fields);
    assert_eq!(ledger.bytes, 10 * each);
}

#[test]
fn a_session_is_lost_once_for_each_host_that_does_not_have_it() {
    let sid = SessionId::from("s");
    let mut ledger = Ledger::new(Bounds::default());
    assert_eq!(ledger.turn_begins(&sid, 1, false), Beginning::Continued, "a new session");
    assert_eq!(ledger.turn_begins(&sid, 1, false), Beginning::Continued);
    assert_eq!(ledger.turn_begins(&sid, 2, false), Beginning::Lost);
    assert_eq!(ledger.turn_begins(&sid, 2, false), Beginning::Continued);
    assert_eq!(ledger.turn_begins(&sid, 3, true), Beginning::Continued, "it brought its history");
    assert_eq!(ledger.turn_begins(&sid, 3, false), Beginning::Continued);
}

#[test]
fn a_session_that_was_given_to_the_new_host_is_not_lost_unless_that_refuses_it() {
    let sid = SessionId::from("s");
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.reseeded(&sid, 2, None);
    assert_eq!(ledger.turn_begins(&sid, 2, false), Beginning::Continued);
    ledger.reseeded(&sid, 3, Some(messages(&["from the source"])));
    assert_eq!(history(&ledger), Some(messages(&["from the source"])));
    assert!(ledger.lost(&sid, 3), "told the first time");
    assert!(!ledger.lost(&sid, 3), "and once");
    assert_eq!(ledger.turn_begins(&sid, 3, false), Beginning::Lost);
    assert_eq!(history(&ledger), None, "what the host has now is its own");
}

#[test]
fn a_session_that_was_given_in_part_is_lost_even_to_a_turn_that_brings_a_history() {
    let sid = SessionId::from("s");
    let mut ledger = seeded(Bounds::default(), &["a"]);
    ledger.turn_ended(&sid, 1, None);
    ledger.reseeded(&sid, 2, None);
    ledger.lost(&sid, 2);
    // The host knows the session by now, and reads a turn's history only for one that it does not know.
    assert_eq!(ledger.turn_begins(&sid, 2, true), Beginning::Lost);
    assert_eq!(ledger.turn_begins(&sid, 2, true), Beginning::Continued, "told once");
}
