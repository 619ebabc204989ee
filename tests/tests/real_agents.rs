//! `scripts/real-agents` with the stand-in that needs no package: every scenario is played, and one that is not as
//! expected is said. Without a Python the tests are skipped, unless `TURNHOST_REQUIRE_PEER` is set.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use turnhost_testkit::{Ended, Process, Scenario, binary};

/// The script at work, or `None` (said on stderr) if there is no Python to run it.
fn real_agents(scenario: &Scenario, arguments: &[&str]) -> Option<Process> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let python =
        std::env::split_paths(&folders).map(|folder| folder.join("python3")).find(|path| path.exists());
    let required = std::env::var_os("TURNHOST_REQUIRE_PEER").is_some();
    assert!(python.is_some() || !required, "python3 is required and not in PATH");
    let Some(python) = python else {
        #[expect(clippy::print_stderr, reason = "whoever runs the tests must see that one was skipped")]
        {
            eprintln!("SKIPPED: there is no python3 in PATH");
        }
        return None;
    };
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/real-agents");
    let launch = scenario
        .launch(&python)
        .args([script.as_os_str(), "--json".as_ref(), "--agents".as_ref(), "stand-in".as_ref()])
        .arg_path("--turnhost", &binary("turnhost"))
        .args(arguments)
        .env("XDG_CACHE_HOME", scenario.home());
    Some(launch.start())
}

#[test]
fn the_stand_in_plays_every_scenario() {
    let scenario = Scenario::new();
    let Some(mut script) = real_agents(&scenario, &[]) else { return };
    let played = [
        "streams",
        "runs a tool",
        "interrupt in silence",
        "interrupt in a tool",
        "host killed in a tool",
        "model refuses",
    ];
    for name in played {
        let line = script.wait_for(name, |line| line["scenario"] == name);
        assert_eq!((&line["agent"], &line["ok"]), (&json!("stand-in"), &json!(true)), "{line}");
        assert_eq!(line["outside"], json!([]));
    }
    assert_eq!(script.wait_exit(), Ended::Code(0));
    assert_eq!(script.frames().len(), played.len());
}

#[test]
fn what_is_not_as_expected_is_said() {
    let scenario = Scenario::new();
    let arguments = ["--scenarios", "model refuses", "--deadline", "0"];
    let Some(mut script) = real_agents(&scenario, &arguments) else { return };
    let line: Value = script.wait_for("the scenario", |line| line["scenario"] == "model refuses");
    assert_eq!(line["ok"], false);
    assert!(line["what"].as_str().is_some_and(|what| what.contains("time is up")), "{line}");
    assert_eq!(script.wait_exit(), Ended::Code(1));
}
