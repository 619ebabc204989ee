//! `turnhost status`: who is registered, whether it is alive, and that looking changes nothing.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use turnhost_os::ProcessIdentity;
use turnhost_testkit::{DEADLINE, Ended, Scenario, Supervise, wait_until};

fn registry(scenario: &Scenario) -> PathBuf {
    scenario.home().join("turnhost/host.json")
}

/// A supervisor with a ready host in the registry, which is where `status` looks by itself; and the host's pid.
fn registered(scenario: &Scenario) -> (Supervise, i64) {
    let file = registry(scenario).display().to_string();
    let host = [turnhost_testkit::binary("compute-host").display().to_string()];
    let supervise = scenario.supervise(&["--registry", &file], &host);
    let pid = supervise.start()["pid"].as_i64().unwrap_or_default();
    (supervise, pid)
}

/// `status` with these arguments: its exit code, stdout and stderr.
#[track_caller]
fn status(scenario: &Scenario, arguments: &[&str]) -> (Ended, String, String) {
    let mut process = scenario.program("turnhost").args(["status"]).args(arguments).start();
    process.close_stdin();
    let ended = process.wait_exit();
    (ended, process.strays().join("\n"), process.stderr())
}

/// `status --json`: its exit code and the object.
#[track_caller]
fn status_json(scenario: &Scenario) -> (Ended, Value) {
    let mut process = scenario.program("turnhost").args(["status", "--json"]).start();
    process.close_stdin();
    let ended = process.wait_exit();
    let [object] = process.frames().try_into().unwrap_or_else(|_| process.fail("one object"));
    (ended, object)
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn write(scenario: &Scenario, record: &Value) {
    let path = registry(scenario);
    let written = std::fs::create_dir_all(scenario.home().join("turnhost"))
        .and_then(|()| std::fs::write(&path, record.to_string()));
    if let Err(error) = written {
        panic!("{}: {error}", path.display());
    }
}

#[test]
fn a_living_host_is_found_with_its_supervisor_its_guard_and_its_memory() {
    let scenario = Scenario::new();
    let (mut supervise, pid) = registered(&scenario);
    let before = std::fs::read(registry(&scenario)).unwrap_or_default();
    let (ended, found) = status_json(&scenario);
    assert_eq!(ended, Ended::Code(0), "{found}");
    assert_eq!((&found["state"], &found["known_by"]), (&json!("alive"), &json!("identity")), "{found}");
    assert_eq!(found["host_pid"].as_i64(), Some(pid));
    let owner = json!({"kind": "supervisor", "pid": supervise.process.pid(), "alive": true});
    assert_eq!(found["owner"], owner);
    assert_eq!(found["guard"]["alive"], true);
    let memory = |name: &str| found["memory"][name].as_u64().unwrap_or_default();
    assert!(memory("host_bytes") > 100_000 && memory("tree_bytes") >= memory("host_bytes"), "{found}");
    assert_eq!(memory("processes"), 1);
    assert!(found["started_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{found}");

    let (ended, text, stderr) = status(&scenario, &[]);
    assert_eq!((ended, stderr.as_str()), (Ended::Code(0), ""));
    assert!(text.contains("state     alive (pid, start ticks and boot"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colour for a pipe: {text}");
    assert_eq!(std::fs::read(registry(&scenario)).unwrap_or_default(), before, "nothing was changed");
    assert_eq!(supervise.finish(), Ended::Code(0));
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(3), &json!("none")), "a clean stop leaves no record");
}

#[test]
fn after_kill_9_of_the_supervisor_the_record_names_a_host_that_is_gone() {
    let scenario = Scenario::new();
    let (mut supervise, pid) = registered(&scenario);
    supervise.process.signal(Signal::SIGKILL);
    assert_eq!(supervise.process.wait_exit(), Ended::Signal(9));
    scenario.wait_nothing_left();
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, found["host_pid"].as_i64()), (Ended::Code(3), Some(pid)));
    assert_eq!(found["alive"], false, "{found}");
    assert_eq!(found["owner"]["alive"], false, "{found}");
    assert_eq!(found["memory"], Value::Null);
    let (_, text, _) = status(&scenario, &[]);
    assert!(text.contains("not running (") && text.contains("turnhost supervise"), "{text}");
    assert!(registry(&scenario).exists(), "the next start deals with it");
}

#[test]
fn a_pid_that_another_process_has_now_is_not_taken_for_the_host_and_not_touched() {
    let scenario = Scenario::new();
    let (mut supervise, pid) = registered(&scenario);
    let honest = read(&registry(&scenario));
    let mut record = honest.clone();
    record["host_start_ticks"] = json!(honest["host_start_ticks"].as_u64().unwrap_or_default() + 1);
    write(&scenario, &record);
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(3), &json!("pid_reused")), "{found}");
    record = honest.clone();
    record["machine_boot_id"] = json!("another boot");
    write(&scenario, &record);
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(3), &json!("rebooted")), "{found}");
    write(&scenario, &honest);
    assert_eq!(i64::from(supervise.host_pid()), pid, "it lives");
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_zombie_is_not_running() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    host.wait_for("its hello", |frame| frame["type"] == "hello");
    let identity = ProcessIdentity::of(host.pid()).unwrap_or_else(|| host.fail("no identity"));
    write(
        &scenario,
        &json!({
            "host_pid": identity.pid,
            "host_start_ticks": identity.start_ticks,
            "machine_boot_id": identity.machine_boot_id,
        }),
    );
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(0), &json!("alive")), "{found}");
    host.signal(Signal::SIGKILL);
    wait_until(DEADLINE, "the zombie", || {
        turnhost_os::identity::stat(identity.pid).filter(turnhost_os::identity::Stat::is_dead)
    });
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(3), &json!("zombie")), "{found}");
    host.wait_exit();
}

#[test]
fn a_file_of_another_program_is_judged_by_words_and_time() {
    let scenario = Scenario::new();
    let mut host = scenario.host(&[]);
    host.wait_for("its hello", |frame| frame["type"] == "hello");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let program = turnhost_testkit::binary("compute-host").display().to_string();
    let record = json!({
        "host_pid": host.pid(), "boot_id": "b", "build_sha": "s", "started_at": now, "argv": [program],
    });
    write(&scenario, &record);
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(0), &json!("alive")), "{found}");
    assert_eq!(found["known_by"], "words_and_time");
    let owner = json!({"kind": "parent", "pid": std::process::id(), "alive": true});
    assert_eq!(found["owner"], owner);
    let (_, text, _) = status(&scenario, &[]);
    assert!(text.contains("probably alive (the file has no start ticks"), "{text}");

    let mut other = record;
    other["argv"] = json!(["python", "-m", "host"]);
    write(&scenario, &other);
    let (ended, found) = status_json(&scenario);
    assert_eq!((ended, &found["state"]), (Ended::Code(3), &json!("pid_reused")), "{found}");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
}

#[test]
fn no_file_and_a_broken_one_say_so_and_stay_as_they_are() {
    let scenario = Scenario::new();
    let (ended, text, _) = status(&scenario, &[]);
    assert_eq!(ended, Ended::Code(3));
    assert!(text.starts_with("no host is recorded in ") && text.contains("turnhost supervise"), "{text}");
    assert!(!scenario.home().join("turnhost").exists(), "no folder, no lock");

    let file = scenario.home().join("other.json");
    if let Err(error) = std::fs::write(&file, "{\"host_pid\": 0}") {
        panic!("{error}");
    }
    let name = file.display().to_string();
    let (ended, text, stderr) = status(&scenario, &["--registry", &name]);
    assert_eq!((ended, text.as_str()), (Ended::Code(2), ""));
    assert!(stderr.contains("other.json cannot be used: it is no record of a host"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), "{\"host_pid\": 0}");
    let left = std::fs::read_dir(scenario.home()).into_iter().flatten().count();
    assert_eq!(left, 1, "nothing was made beside it");
}
