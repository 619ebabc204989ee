//! Nothing is left: however the supervisor, the guard or the host ends, no process of the tree outlives it. Found by
//! the marker in the environment, whoever the parent is.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{DEADLINE, Ended, Scenario, Supervise, wait_until};

type Kill = rustix::process::Signal;

fn compute_host() -> Vec<String> {
    vec![turnhost_testkit::binary("compute-host").display().to_string()]
}

/// A host that ignores the end of stdin and every polite signal.
fn stubborn(scenario: &Scenario) -> Vec<String> {
    scenario.faulty_argv(&[
        json!({"ignore": ["TERM", "INT", "HUP"]}),
        json!({"hello": {}}),
        json!({"read": 1_000_000}),
        json!({"sleep_ms": 600_000}),
    ])
}

/// A host with a grandchild in its own session that ignores TERM, and one that holds the pipes; then it behaves.
fn with_grandchildren(scenario: &Scenario) -> Vec<String> {
    scenario.faulty_argv(&[
        json!({"setsid_child": {"seconds": 600}}),
        json!({"hold_pipes": {"seconds": 600}}),
        json!({"hello": {}}),
        json!({"serve": true}),
    ])
}

/// A turn under way whose agent has started processes that changed session and ignore TERM.
fn busy(scenario: &Scenario, supervise: &Supervise) {
    let command = "trap '' TERM INT HUP; sleep 600 & wait";
    let script = json!([
        {"spawn": ["sh", "-c", command], "detach": true},
        {"spawn": ["sh", "-c", command]},
        {"delta": "spawned"},
        {"sleep_ms": 600_000}
    ]);
    supervise.submit("s", "busy", json!({"script": script}));
    supervise.turn_frame("busy", "delta");
    // Supervisor, guard, host, two shells and their sleeps.
    scenario.wait_processes("the processes of the turn", |alive| alive.len() >= 7);
}

/// The guard: the parent of the host.
fn guard_of(host: i32) -> i32 {
    match turnhost_os::identity::stat(host) {
        Some(stat) => stat.ppid,
        None => panic!("the host {host} is gone"),
    }
}

fn kill_supervisor(scenario: &Scenario, mut supervise: Supervise) {
    supervise.process.signal(Signal::SIGKILL);
    assert_eq!(supervise.process.wait_exit(), Ended::Signal(9));
    scenario.wait_nothing_left();
}

fn wait_dead(pid: i32) {
    wait_until(DEADLINE, "the end of a process", || {
        turnhost_os::identity::stat(pid).is_none_or(|stat| stat.is_dead()).then_some(())
    });
}

#[test]
fn a_killed_supervisor_leaves_nothing_of_a_busy_host_and_its_detached_children() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.start();
    busy(&scenario, &supervise);
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_supervisor_leaves_nothing_of_a_foreign_host_with_grandchildren() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &with_grandchildren(&scenario));
    supervise.start();
    supervise.submit("s", "r", json!({"delay_s": 600}));
    supervise.turn_frame("r", "delta");
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_supervisor_leaves_nothing_of_a_stopped_host() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.start();
    busy(&scenario, &supervise);
    turnhost_testkit::signal(supervise.host_pid(), Kill::STOP);
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_supervisor_leaves_nothing_of_a_host_that_ignores_every_request_to_go() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &stubborn(&scenario));
    supervise.start();
    supervise.submit("s", "r", json!({}));
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_supervisor_leaves_nothing_of_a_python_host_that_ignores_everything() {
    let program = "\
import json, os, signal, sys, time
for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(name, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
print(json.dumps({'type': 'hello', 'host_pid': os.getpid(), 'boot_id': 'b'}), flush=True)
for line in sys.stdin:
    pass
time.sleep(600)
";
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &["python3", "-c", program]);
    supervise.start();
    supervise.submit("s", "r", json!({}));
    scenario.wait_processes("the host and its child", |alive| alive.len() >= 4);
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_guard_leaves_nothing_and_is_a_crash() {
    for ours in [true, false] {
        let scenario = Scenario::new();
        let argv = if ours { compute_host() } else { with_grandchildren(&scenario) };
        let supervise = scenario.supervise(&["--respawn-max", "0"], &argv);
        supervise.start();
        supervise.submit("s", "r", json!({"delay_s": 600}));
        supervise.turn_frame("r", "delta");
        let host = supervise.host_pid();
        turnhost_testkit::signal(guard_of(host), Kill::KILL);
        // Our own host sees its parent go and may still end the turn itself; another one is killed with it.
        let ending = supervise.ending("r");
        assert!(ending["reason"] == "crash" || (ours && ending["interrupted"] == true), "{ending}");
        wait_dead(host);
        let own = supervise.process.pid();
        scenario.wait_processes("the end of the host's tree", |alive| alive == [own]);
        let mut supervise = supervise;
        assert_eq!(supervise.finish(), Ended::Code(0));
    }
}

#[test]
fn a_killed_guard_is_replaced_with_the_host_and_the_next_turn_works() {
    let scenario = Scenario::new();
    let mut supervise = scenario.supervise(&["--backoff-base-ms", "1"], &compute_host());
    supervise.start();
    busy(&scenario, &supervise);
    let host = supervise.host_pid();
    turnhost_testkit::signal(guard_of(host), Kill::KILL);
    supervise.ending("busy");
    // The dying host would take the next turn and die with it.
    supervise
        .process
        .wait_for("the second host", |event| event["state"] == "ready" && event["incarnation"] == 2);
    supervise.submit("s2", "next", json!({"delta_count": 1}));
    assert_eq!(supervise.ending("next")["type"], "turn.end");
    // The supervisor, the next guard and the next host; nothing of the first ones.
    scenario.wait_processes("the end of the first tree", |alive| alive.len() == 3);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_stopped_guard_does_not_keep_a_shutdown_from_ending_everything() {
    let scenario = Scenario::new();
    let mut supervise = scenario.supervise(&["--grace-ms", "200"], &stubborn(&scenario));
    supervise.start();
    turnhost_testkit::signal(guard_of(supervise.host_pid()), Kill::STOP);
    supervise.process.close_stdin();
    assert_eq!(supervise.process.wait_exit(), Ended::Code(0), "{}", supervise.process.stderr());
    scenario.wait_nothing_left();
}

#[test]
fn a_killed_supervisor_whose_guard_is_stopped_leaves_nothing_of_our_own_host_nor_of_the_guard() {
    let scenario = Scenario::new();
    let supervise = scenario.supervise(&[], &compute_host());
    supervise.start();
    busy(&scenario, &supervise);
    turnhost_testkit::signal(guard_of(supervise.host_pid()), Kill::STOP);
    kill_supervisor(&scenario, supervise);
}

#[test]
fn a_killed_supervisor_of_a_foreign_host_leaves_nothing_once_its_stopped_guard_is_continued() {
    let scenario = Scenario::new();
    let mut supervise = scenario.supervise(&[], &with_grandchildren(&scenario));
    supervise.start();
    let guard = guard_of(supervise.host_pid());
    turnhost_testkit::signal(guard, Kill::STOP);
    supervise.process.signal(Signal::SIGKILL);
    assert_eq!(supervise.process.wait_exit(), Ended::Signal(9));
    turnhost_testkit::signal(guard, Kill::CONT);
    scenario.wait_nothing_left();
}

#[test]
fn a_crash_leaves_nothing_of_the_old_tree() {
    let scenario = Scenario::new();
    let mut supervise = scenario.supervise(&["--respawn-max", "0"], &compute_host());
    supervise.start();
    busy(&scenario, &supervise);
    turnhost_testkit::signal(supervise.host_pid(), Kill::KILL);
    assert_eq!(supervise.ending("busy")["reason"], "crash");
    let own = supervise.process.pid();
    scenario.wait_processes("the end of the host's tree", |alive| alive == [own]);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_shutdown_leaves_nothing_and_says_so() {
    for ours in [true, false] {
        let scenario = Scenario::new();
        let host = if ours { compute_host() } else { with_grandchildren(&scenario) };
        let mut supervise = scenario.supervise(&["--grace-ms", "300"], &host);
        supervise.start();
        if ours {
            busy(&scenario, &supervise);
        }
        let own = supervise.process.pid();
        let guard = guard_of(supervise.host_pid());
        let tree: Vec<i32> =
            scenario.processes().into_iter().filter(|pid| ![own, guard].contains(pid)).collect();
        let stopped = supervise.ok(json!({"op": "shutdown"}));
        assert_eq!(stopped["survivors"], json!([]), "{stopped}");
        // The guard goes last, and of itself.
        let left: Vec<i32> = scenario.processes().into_iter().filter(|pid| tree.contains(pid)).collect();
        assert_eq!(left, [] as [i32; 0], "all of the host's tree was gone when the answer came");
        scenario.wait_processes("the end of the guard", |alive| alive == [own]);
        assert_eq!(supervise.finish(), Ended::Code(0));
    }
}

#[test]
fn a_crash_loop_leaves_nothing() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"setsid_child": {"seconds": 600}}),
        json!({"hold_pipes": {"seconds": 600}}),
        json!({"exit": 1}),
    ]);
    let mut supervise = scenario.supervise(&["--respawn-max", "3", "--backoff-base-ms", "1"], &host);
    supervise.op(json!({"op": "start"}));
    supervise.state_after(0, "crash_looped");
    let own = supervise.process.pid();
    scenario.wait_processes("the end of every tree", |alive| alive == [own]);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"setsid_child": {"seconds": 600}}),
        json!({"hello": {"build_sha": "bad"}}),
        json!({"sleep_ms": 600_000}),
    ]);
    let mut supervise = scenario.supervise(&["--expected-build-sha", "good"], &host);
    assert_eq!(supervise.refused(json!({"op": "start"}))["kind"], "build_mismatch");
    let own = supervise.process.pid();
    scenario.wait_processes("the end of the host's tree", |alive| alive == [own]);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn no_zombie_is_left_under_the_supervisor() {
    let scenario = Scenario::new();
    let mut supervise =
        scenario.supervise(&["--backoff-base-ms", "1", "--respawn-max", "100"], &compute_host());
    supervise.start();
    let mut after = 0;
    for _ in 0..5 {
        turnhost_testkit::signal(supervise.host_pid(), Kill::KILL);
        let (at, _) = supervise.state_after(after, "backing_off");
        after = supervise.state_after(at, "ready").0;
    }
    let own = supervise.process.pid();
    wait_until(DEADLINE, "the zombies under the supervisor to be reaped", || {
        let children = turnhost_os::tree::children(own);
        let dead = children
            .iter()
            .filter(|pid| turnhost_os::identity::stat(**pid).is_some_and(|stat| stat.is_dead()))
            .count();
        (children.len() == 1 && dead == 0).then_some(())
    });
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn without_a_guard_a_shutdown_still_ends_the_hosts_group() {
    let scenario = Scenario::new();
    let host = scenario.faulty_argv(&[
        json!({"hold_pipes": {"seconds": 600}}),
        json!({"hello": {}}),
        json!({"serve": true}),
    ]);
    let mut supervise = scenario.supervise(&["--guard", "none", "--grace-ms", "300"], &host);
    supervise.start();
    let stopped = supervise.ok(json!({"op": "shutdown"}));
    assert_eq!(stopped["exit_code"], json!(0), "{stopped}");
    let own = supervise.process.pid();
    scenario.wait_processes("the end of the group", |alive| alive == [own]);
    assert_eq!(supervise.finish(), Ended::Code(0));
}

#[test]
fn a_registry_with_an_orphan_of_a_dead_supervisor_is_reconciled_at_the_next_start() {
    let scenario = Scenario::new();
    let registry = scenario.home().join("run/host.json");
    let file = registry.display().to_string();
    let options = ["--guard", "none", "--registry", &file];
    let mut first = scenario.supervise(&options, &stubborn(&scenario));
    assert_eq!(first.start()["reconciled"], "none");
    let orphan = first.host_pid();
    first.process.signal(Signal::SIGKILL);
    assert_eq!(first.process.wait_exit(), Ended::Signal(9));
    assert!(turnhost_os::ProcessIdentity::of(orphan).is_some(), "nobody guards it, so it lives on");
    let mut second = scenario.supervise(&options, &compute_host());
    assert_eq!(second.start()["reconciled"], "terminated");
    wait_dead(orphan);
    let text = std::fs::read_to_string(&registry).unwrap_or_default();
    let record: Value = serde_json::from_str(&text).unwrap_or_default();
    assert_eq!(record["host_pid"], second.host_pid(), "{text}");
    assert_eq!(second.finish(), Ended::Code(0));
    assert!(!registry.exists(), "the file goes with its host");
}
