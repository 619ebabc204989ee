//! Both ways with the public peer, the Python package `hermes-agent` 0.19.0: its supervisor drives our host, our
//! supervisor drives its host. `scripts/setup` installs it; without it the tests are skipped, unless
//! `TURNHOST_REQUIRE_PEER` is set.

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use turnhost_testkit::{Ended, Scenario, binary, installed_python};

/// The peer's Python, or `None` if it is not installed and not required.
fn peer_python() -> Option<PathBuf> {
    installed_python("the peer", "TURNHOST_PEER_PYTHON", "peer-0.19.0")
}

#[test]
fn the_peers_supervisor_drives_our_host() {
    let Some(python) = peer_python() else { return };
    let scenario = Scenario::new();
    let work = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer/drive_our_host.py");
    let mut peer = scenario
        .launch(&python)
        .args([script.as_os_str(), binary("compute-host").as_os_str(), work.path().as_os_str()])
        .start();
    let step = |name: &str| peer.wait_for(name, |line| line["step"] == name);

    let hello = step("hello");
    assert_eq!(hello["hello_pid"], hello["pid"]);
    assert_eq!(hello["home"], json!(work.path().join("home")));

    let turn = step("turn");
    assert_eq!(turn["text"], "s1:hello:0000 s1:hello:0001 s1:hello:0002 ");
    let end = &turn["end"];
    assert_eq!(
        (&end["type"], &end["history_version"], &end["message_count"], &end["interrupted"]),
        (&json!("turn.end"), &json!(1), &json!(2), &json!(false))
    );

    let end = &step("interrupted")["end"];
    assert_eq!((&end["type"], &end["interrupted"]), (&json!("turn.end"), &json!(true)));

    let ack = &step("reset")["ack"];
    assert_eq!(
        (&ack["type"], &ack["route_name"], &ack["message_count"]),
        (&json!("control.ack"), &json!("session.reset"), &json!(0))
    );

    let end = &step("crash")["end"];
    assert_eq!((&end["type"], &end["reason"]), (&json!("turn.error"), &json!("crash")));

    let again = step("respawned");
    assert_eq!((&again["new_pid"], &again["end"]["type"]), (&json!(true), &json!("turn.end")));

    assert_eq!(step("shutdown")["exit_code"], 0);
    assert_eq!(peer.wait_exit(), Ended::Code(0));
}

#[test]
fn our_supervisor_drives_the_peers_host() {
    let Some(python) = peer_python() else { return };
    let scenario = Scenario::new();
    let python = python.display().to_string();
    let host = [python.as_str(), "-m", "tui_gateway.compute_host"];
    // A Python that imports much may need long on a busy machine.
    let mut supervise = scenario.supervise(&["--hello-timeout-ms", "60000"], &host);

    let ready = supervise.ok(json!({"op": "start"}));
    assert_eq!((&ready["incarnation"], &ready["protocol"]), (&json!(1), &json!(0)));

    // The peer's session.seeded carries nothing but the ids.
    let history = json!([{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "answer"}]);
    let seeded = supervise.ok(json!({"op": "seed", "sid": "s1", "history": history}));
    assert_eq!(seeded, json!({"history_version": null, "message_count": null}));

    scripted_turn(&supervise, "t1", 4);

    supervise.ok(json!({"op": "submit_turn", "sid": "s1", "request_id": "t2", "text": "long",
        "delta_count": 1_000_000, "delay_s": 0.01}));
    supervise.turn_frame("t2", "delta");
    let stopped = supervise.ok(json!({"op": "interrupt", "sid": "s1"}));
    assert_eq!(stopped["outcome"], "applied");
    assert_eq!(supervise.ending("t2")["interrupted"], true);

    supervise.ok(json!({"op": "submit_turn", "sid": "s1", "request_id": "t3", "text": "doomed",
        "delta_count": 1_000_000, "delay_s": 0.01}));
    supervise.turn_frame("t3", "delta");
    let (before, _) = supervise.state_after(0, "ready");
    let pid = supervise.ok(json!({"op": "status"}))["pid"].as_i64().unwrap();
    nix::sys::signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    let end = supervise.ending("t3");
    assert_eq!(
        (&end["reason"], &end["signal_name"], &end["turn_started"]),
        (&json!("crash"), &json!("SIGKILL"), &json!(true))
    );

    let (_, ready) = supervise.state_after(before + 1, "ready");
    assert_eq!(ready["incarnation"], 2);
    // A session that the peer's host does not know would get its real agent; the scripted answer shows that it was
    // seeded again. The peer does not report what turns append, so the loss of these is told first.
    scripted_turn(&supervise, "t4", 4);
    let lost = supervise.event("session_lost", |_| true);
    assert_eq!(lost["sid"], "s1");

    let report = supervise.ok(json!({"op": "shutdown"}));
    assert_eq!((&report["exit_code"], &report["survivors"]), (&json!(0), &json!([])));
    assert_eq!(supervise.finish(), Ended::Code(0));
}

/// A turn of three deltas whose end counts `messages` in the history.
fn scripted_turn(supervise: &turnhost_testkit::Supervise, id: &str, messages: u64) {
    supervise.ok(json!({"op": "submit_turn", "sid": "s1", "request_id": id, "text": "hi",
        "delta_count": 3, "delay_s": 0}));
    assert_eq!(supervise.ending(id)["message_count"], messages);
    let frames = supervise.turn_frames(id);
    let types: Vec<&Value> = frames.iter().map(|frame| &frame["type"]).collect();
    assert!(types.first().is_some_and(|first| *first == "turn.started"), "{types:?}");
    let text: String = frames.iter().filter_map(|frame| frame["text"].as_str()).collect();
    assert_eq!(text, "s1:hi:0000 s1:hi:0001 s1:hi:0002 ");
}
