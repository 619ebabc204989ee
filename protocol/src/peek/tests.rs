use super::*;
use pretty_assertions::assert_eq;

#[track_caller]
fn check(head: &str, tail: &str, expected: [Option<&str>; 3]) {
    let ids = peek_ids(head.as_bytes(), tail.as_bytes());
    let found = [
        ids.frame_type.as_deref(),
        ids.request_id.as_ref().map(RequestId::as_str),
        ids.sid.as_ref().map(SessionId::as_str),
    ];
    assert_eq!(found, expected, "{head} … {tail}");
}

#[test]
fn fields_of_the_outermost_object_are_found_in_the_head() {
    let all = [Some("turn.end"), Some("r1"), Some("s1")];
    check(r#"{"type":"turn.end","request_id":"r1","sid":"s1","x":"cut"#, "", all);
    check(r#"{ "x" : [1, {"y": 2}], "sid" : "s1", "type" :"turn.end" , "request_id": "r1", "#, "", all);
    check("\u{1b}[0m\u{feff}{\"type\":\"turn.end\",\"request_id\":\"r1\",\"sid\":\"s1\",", "", all);
    check(r#"{"type":"turn.end","request_id":"r1","sid":"s1"}"#, "", all);
}

#[test]
fn fields_of_inner_objects_and_words_in_strings_are_not_taken() {
    let none = [None, None, None];
    check(r#"{"message":{"type":"turn.end","request_id":"r1","sid":"s1"},"x":"#, "", none);
    check(r#"{"text":"\"type\":\"turn.end\"","a":"type","b":"request_id""#, "", none);
    check(r#"["type","turn.end"]"#, "", none);
    check(r#"{"type":{} "turn.end","request_id":[1] "r1","sid" [:] "s1","#, "", none);
    check(r#"text {"type":"turn.end"}"#, "", none);
    check(r#"{"a":"b"},"type":"turn.end"}"#, "", none);
    check("", "", none);
}

#[test]
fn of_two_fields_the_first_counts_and_only_strings_do() {
    check(r#"{"type":"delta","type":"turn.end","request_id":7,"sid":null,"#, "", [Some("delta"), None, None]);
    let head = r#"{"request_id":"r1","request_id":"r2","sid":"s1","sid":"s2","#;
    check(head, "", [None, Some("r1"), Some("s1")]);
    check(head, r#"x","request_id":"r3","sid":"s3"}"#, [None, Some("r1"), Some("s1")]);
}

#[test]
fn escapes_are_read_and_lone_surrogates_replaced() {
    check(r#"{"request_id":"r\"\u0031","sid":"\ud800","#, "", [None, Some("r\"1"), Some("\u{fffd}")]);
}

#[test]
fn fields_of_the_outermost_object_are_found_in_the_tail() {
    let tail = r#"xxx","type":"turn.end","request_id":"r1","usage":{"type":"x","n":[1]},"sid":"s1"}"#;
    check(r#"{"final_response":"xx"#, tail, [Some("turn.end"), Some("r1"), Some("s1")]);
    check(
        r#"{"type":"turn.end","x":"xx"#,
        r#"x","request_id" : "r1" , "host_ns":5} "#,
        [Some("turn.end"), Some("r1"), None],
    );
}

#[test]
fn fields_that_may_be_inside_something_are_not_taken_from_the_tail() {
    let none = [None, None, None];
    check("{", r#"x","message":{"type":"turn.end","request_id":"r1"}}"#, none);
    check("{", r#"[{"type":"turn.end","request_id":"r1"}],"a":1}"#, none);
    check("{", r#"\"type\":\"turn.end\",\"request_id\":\"r1\"}"}"#, none);
    check("{", r#""type":"turn.end","request_id":"r1""#, none);
    check("{", r#""type":"turn.end","request_id":"r1"} trailing"#, none);
    check("{", r#""request_id":7,"other":"r1"}"#, none);
}

#[test]
fn a_deep_or_broken_head_ends_the_search_without_recursion() {
    let deep = format!(r#"{{"type":"turn.end","message":{}"#, r#"{"a":"#.repeat(200_000));
    check(&deep, "", [Some("turn.end"), None, None]);
    check(
        "{\"type\":\"turn.end\",\"a\":\"\t\",\"request_id\":\"r1\"}",
        "",
        [Some("turn.end"), Some("r1"), None],
    );
}
