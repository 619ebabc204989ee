//! The harness itself, and the manual of `faulty-host`.

use pretty_assertions::assert_eq;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use turnhost_testkit::{Ended, Scenario};

const MANUAL: &str = include_str!("../../docs/harness.md");

fn panic_text(f: impl FnOnce()) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("it should have panicked") };
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// The fenced blocks of the manual with this language.
fn blocks(language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = MANUAL;
    while let Some((_, after)) = rest.split_once(&format!("```{language}\n")) {
        let Some((block, after)) = after.split_once("```") else {
            panic!("a block of the manual has no end")
        };
        found.push(block.to_owned());
        rest = after;
    }
    found
}

#[test]
fn every_example_of_the_manual_is_a_right_script() {
    let scenario = Scenario::new();
    let file = scenario.home().join("script");
    let scripts = [blocks("json"), blocks("jsonl")].concat();
    assert!(scripts.len() >= 12, "only {} examples were found", scripts.len());
    for script in scripts {
        std::fs::write(&file, &script).unwrap();
        let mut check = scenario.program("faulty-host").args(["--check"]).arg_path("--script", &file).start();
        assert_eq!(check.wait_exit(), Ended::Code(0), "{script}\n{}", check.stderr());
        assert_eq!(check.stdout_bytes(), 0, "--check played something");
    }
}

#[test]
fn the_manual_has_every_step() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"no such step": 1})]);
    assert_eq!(host.wait_exit(), Ended::Code(2));
    let stderr = host.stderr();
    let (_, steps) = stderr.trim().rsplit_once("the steps are ").unwrap();
    let steps: Vec<_> = steps.split(", ").collect();
    assert_eq!(steps.len(), 18, "{steps:?}");
    for step in steps {
        assert!(MANUAL.contains(&format!("{{\"{step}\":")), "`{step}` is not in the manual");
    }
}

#[test]
fn a_test_that_leaves_a_process_fails_and_the_process_is_ended() {
    let scenario = Scenario::new();
    let mut host = scenario.faulty(&[json!({"setsid_child": {"seconds": 600}})]);
    assert_eq!(host.wait_exit(), Ended::Code(0));
    let marker = scenario.marker().to_owned();
    assert_eq!(scenario.processes().len(), 1);
    let complaint =
        panic_text(move || scenario.expect_nothing_left_within(std::time::Duration::from_millis(50)));
    assert!(complaint.contains("the test left processes behind"), "{complaint}");
    assert!(complaint.contains("faulty-host grandchild setsid 600"), "{complaint}");
    assert_eq!(turnhost_os::tree::with_environment(turnhost_testkit::MARKER, &marker), [] as [i32; 0]);
}

#[test]
fn a_frame_that_cannot_come_any_more_fails_with_the_transcript() {
    let scenario = Scenario::new();
    let host = scenario.faulty(&[
        json!({"hello": {}}),
        json!({"write": "stray\n"}),
        json!({"stderr": {"bytes": 2}}),
    ]);
    let complaint = panic_text(|| drop(host.wait_for("godot", |frame| frame["type"] == "godot")));
    for wanted in ["waited in vain for godot", "out {", "\"type\":\"hello\"", "out stray"] {
        assert!(complaint.contains(wanted), "{wanted} is not in\n{complaint}");
    }
}
