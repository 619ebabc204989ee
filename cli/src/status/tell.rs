//! What `status` says: pure.

use crate::exit;
use crate::table::{Colour, aligned, cell, coloured};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};
use turnhost_supervisor::registry::{Evidence, InspectError, Inspection, Life, Memory, Owner};

/// The exit code for what was found.
pub(super) fn code(found: Option<&Inspection>) -> u8 {
    match found.map(|found| found.life) {
        Some(Life::Alive(_)) => exit::ENDED,
        Some(Life::Reused(_) | Life::Zombie | Life::Gone | Life::Rebooted) | None => exit::UNAVAILABLE,
    }
}

/// A table for people.
pub(super) fn text(registry: &Path, found: Option<&Inspection>, now: SystemTime, colour: bool) -> String {
    let Some(found) = found else {
        return format!(
            "no host is recorded in {}\n`turnhost supervise -- HOST ARGV` records one once its host is started (`run` and `demo` do \
             not); --registry FILE looks elsewhere\n",
            registry.display()
        );
    };
    let is_alive = matches!(found.life, Life::Alive(_));
    let shade = match (is_alive, found.owner) {
        (false, _) => Colour::Red,
        (true, Owner::Supervisor { lives: false, .. } | Owner::Nobody) => Colour::Yellow,
        (true, Owner::Supervisor { lives: true, .. } | Owner::Parent { .. }) => Colour::Green,
    };
    let (word, why) = life(found);
    let row = |name: &str, value: String| [name.to_owned(), value];
    let mut rows = vec![
        row("registry", registry.display().to_string()),
        row("state", format!("{} ({why})", coloured(word, shade, colour))),
        row("host", since(found, now)),
        row("command", cell(&found.argv.join(" "))),
        row("owner", owner(found)),
    ];
    if let Some((pid, lives)) = found.guard {
        rows.push(row("guard", format!("pid {pid}, {}", alive_or_gone(lives))));
    }
    if let Some(Memory { host, tree, processes }) = found.memory {
        let (host, tree) = (mebibytes(host), mebibytes(tree));
        rows.push(row(
            "memory",
            format!(
                "{host} MiB; {tree} MiB with all of its tree ({processes} process{})",
                if processes == 1 { "" } else { "es" }
            ),
        ));
    }
    if !found.build_sha.is_empty() {
        rows.push(row("build", cell(&found.build_sha)));
    }
    let advice = advice(found).map(|advice| format!("{advice}\n")).unwrap_or_default();
    aligned(&rows) + &advice
}

/// The same as one object. Times are RFC 3339, memory is bytes.
pub(super) fn json(registry: &Path, found: Option<&Inspection>) -> Value {
    let Some(found) = found else {
        return json!({"registry": registry.to_string_lossy(), "state": "none"});
    };
    let owner = match found.owner {
        Owner::Supervisor { pid, lives } => json!({"kind": "supervisor", "pid": pid, "alive": lives}),
        Owner::Parent { pid } => json!({"kind": "parent", "pid": pid, "alive": true}),
        Owner::Nobody => Value::Null,
    };
    json!({
        "registry": registry.to_string_lossy(),
        "state": state(found.life),
        "alive": matches!(found.life, Life::Alive(_)),
        "known_by": evidence(found.life).map(|evidence| match evidence {
            Evidence::Identity => "identity",
            Evidence::WordsAndTime => "words_and_time",
        }),
        "host_pid": found.host_pid,
        "boot_id": found.boot_id,
        "build_sha": found.build_sha,
        "argv": found.argv,
        "owner": owner,
        "guard": found.guard.map(|(pid, lives)| json!({"pid": pid, "alive": lives})),
        "recorded_at": found.recorded_at.and_then(rfc3339),
        "started_at": found.started_at.and_then(rfc3339),
        "memory": found.memory.map(|memory| json!({
            "host_bytes": memory.host,
            "tree_bytes": memory.tree,
            "processes": memory.processes,
        })),
    })
}

/// The object for a file that cannot be used.
pub(super) fn unreadable_json(error: &InspectError) -> Value {
    json!({"registry": error.path.to_string_lossy(), "state": "unreadable", "reason": error.reason})
}

fn state(life: Life) -> &'static str {
    match life {
        Life::Alive(_) => "alive",
        Life::Reused(_) => "pid_reused",
        Life::Zombie => "zombie",
        Life::Gone => "gone",
        Life::Rebooted => "rebooted",
    }
}

fn evidence(life: Life) -> Option<Evidence> {
    match life {
        Life::Alive(evidence) | Life::Reused(evidence) => Some(evidence),
        Life::Zombie | Life::Gone | Life::Rebooted => None,
    }
}

/// The state, and how it is known.
fn life(found: &Inspection) -> (&'static str, String) {
    let pid = found.host_pid;
    match found.life {
        Life::Alive(Evidence::Identity) => {
            ("alive", "pid, start ticks and boot of the machine are the recorded ones".to_owned())
        }
        Life::Alive(Evidence::WordsAndTime) => (
            "probably alive",
            "the file has no start ticks; the command line and the time of the start fit".to_owned(),
        ),
        Life::Reused(Evidence::Identity) => {
            ("not running", format!("pid {pid} is another process now: its start ticks differ"))
        }
        Life::Reused(Evidence::WordsAndTime) => (
            "probably not running",
            format!("pid {pid} runs another command line, or started after it was recorded"),
        ),
        Life::Zombie => {
            ("not running", format!("pid {pid} is a zombie: it has ended and waits for its parent"))
        }
        Life::Gone => ("not running", format!("no process has pid {pid}")),
        Life::Rebooted => ("not running", "it was recorded before the machine was started last".to_owned()),
    }
}

fn owner(found: &Inspection) -> String {
    match found.owner {
        Owner::Supervisor { pid, lives } => format!("supervisor pid {pid}, {}", alive_or_gone(lives)),
        Owner::Parent { pid } => format!("its parent, pid {pid}, which holds its pipes"),
        Owner::Nobody => "nobody that can be seen".to_owned(),
    }
}

fn alive_or_gone(lives: bool) -> &'static str {
    if lives { "alive" } else { "gone" }
}

fn since(found: &Inspection, now: SystemTime) -> String {
    let (word, time) = match (found.started_at, found.recorded_at) {
        (Some(started), _) => ("up", Some(started)),
        (None, recorded) => ("recorded", recorded),
    };
    let Some((time, text)) = time.and_then(|time| Some((time, rfc3339(time)?))) else {
        return format!("pid {}", found.host_pid);
    };
    // A clock may have been set back.
    let past = now.duration_since(time).unwrap_or_default();
    match word {
        "up" => format!("pid {}, up {} (since {text})", found.host_pid, human(past)),
        _ => format!("pid {}, recorded {} ago ({text})", found.host_pid, human(past)),
    }
}

/// What can be done, where something should be.
fn advice(found: &Inspection) -> Option<&'static str> {
    let owned = match found.owner {
        Owner::Supervisor { lives, .. } => lives,
        Owner::Parent { .. } => true,
        Owner::Nobody => false,
    };
    match found.life {
        Life::Alive(_) if owned => None,
        Life::Alive(_) => Some(
            "It is an orphan: the next `turnhost supervise` with this registry ends it, and so does its guard.",
        ),
        Life::Reused(_) | Life::Zombie | Life::Gone | Life::Rebooted if owned => {
            Some("Its supervisor lives and decides whether to start another one.")
        }
        Life::Reused(_) => {
            Some("That process is never signalled; the next `turnhost supervise` removes the file.")
        }
        Life::Zombie | Life::Gone | Life::Rebooted => {
            Some("Start one with `turnhost supervise -- HOST ARGV`, which removes the file first.")
        }
    }
}

fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let seconds = i64::try_from(since.as_secs()).ok()?;
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// A length of time in its two largest units.
fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// With one digit behind the point.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1024 * 1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn alive() -> Inspection {
        Inspection {
            host_pid: 4711,
            boot_id: "b".to_owned(),
            build_sha: "abc".to_owned(),
            argv: vec!["turnhost".to_owned(), "host".to_owned()],
            recorded_at: Some(at(NOW - 7200)),
            started_at: Some(at(NOW - 7201)),
            life: Life::Alive(Evidence::Identity),
            owner: Owner::Supervisor { pid: 4000, lives: true },
            guard: Some((4710, true)),
            memory: Some(Memory { host: 13 << 20, tree: (40 << 20) + (1 << 19), processes: 3 }),
        }
    }

    fn said(found: Option<&Inspection>) -> String {
        text(Path::new("/h/host.json"), found, at(NOW), false)
    }

    #[test]
    fn a_living_host_is_told_with_whose_it_is_since_when_and_what_it_holds() {
        let wanted = "\
registry  /h/host.json
state     alive (pid, start ticks and boot of the machine are the recorded ones)
host      pid 4711, up 2 h 0 min (since 2027-01-15T05:59:59Z)
command   turnhost host
owner     supervisor pid 4000, alive
guard     pid 4710, alive
memory    13.0 MiB; 40.5 MiB with all of its tree (3 processes)
build     abc
";
        assert_eq!(said(Some(&alive())), wanted);
        let json = json(Path::new("/h/host.json"), Some(&alive()));
        assert_eq!(json["state"], "alive");
        assert_eq!(json["known_by"], "identity");
        assert_eq!(json["started_at"], "2027-01-15T05:59:59Z");
        assert_eq!(json["owner"], json!({"kind": "supervisor", "pid": 4000, "alive": true}));
        assert_eq!(json["memory"]["tree_bytes"], (40 << 20) + (1 << 19));
        assert_eq!(code(Some(&alive())), 0);
    }

    #[test]
    fn every_other_state_has_a_word_a_reason_advice_and_the_code_3() {
        let dead = |life| Inspection {
            life,
            started_at: None,
            memory: None,
            owner: Owner::Supervisor { pid: 4000, lives: false },
            ..alive()
        };
        for (life, state, reason, advice) in [
            (Life::Gone, "gone", "no process has pid 4711", "turnhost supervise"),
            (Life::Zombie, "zombie", "a zombie", "turnhost supervise"),
            (Life::Rebooted, "rebooted", "before the machine", "turnhost supervise"),
            (Life::Reused(Evidence::Identity), "pid_reused", "start ticks differ", "never signalled"),
            (Life::Reused(Evidence::WordsAndTime), "pid_reused", "another command line", "never signalled"),
        ] {
            let found = dead(life);
            let said = said(Some(&found));
            assert!(
                said.contains("not running (") && said.contains(reason) && said.contains(advice),
                "{said}"
            );
            assert!(said.contains("recorded 2 h 0 min ago (2027-01-15T06:00:00Z)"), "{said}");
            assert_eq!(json(Path::new("/h"), Some(&found))["state"], state);
            assert_eq!(code(Some(&found)), 3, "{state}");
        }
        assert!(said(None).starts_with("no host is recorded in /h/host.json\n"));
        assert_eq!(json(Path::new("/h"), None), json!({"registry": "/h", "state": "none"}));
        assert_eq!(code(None), 3);
    }

    #[test]
    fn an_orphan_is_alive_and_nobodys() {
        for owner in [Owner::Supervisor { pid: 4000, lives: false }, Owner::Nobody] {
            let found = Inspection { owner, ..alive() };
            assert!(said(Some(&found)).contains("It is an orphan"), "{owner:?}");
            assert_eq!(code(Some(&found)), 0);
        }
        let found = Inspection { owner: Owner::Parent { pid: 5 }, guard: None, ..alive() };
        let said = said(Some(&found));
        assert!(said.contains("owner     its parent, pid 5") && !said.contains("orphan"), "{said}");
        assert!(!said.contains("guard"), "{said}");
        let dead = Inspection { life: Life::Gone, ..alive() };
        assert!(self::said(Some(&dead)).contains("Its supervisor lives and decides"));
    }

    #[test]
    fn colour_follows_the_state_and_odd_figures_are_no_harm() {
        let painted = |found: &Inspection| text(Path::new("/h"), Some(found), at(NOW), true);
        assert!(painted(&alive()).contains("\u{1b}[32malive"));
        let orphan = Inspection { owner: Owner::Nobody, ..alive() };
        assert!(painted(&orphan).contains("\u{1b}[33malive"));
        assert!(painted(&Inspection { life: Life::Gone, ..alive() }).contains("\u{1b}[31mnot running"));
        let odd = Inspection {
            recorded_at: Some(at(u64::MAX >> 1)),
            started_at: None,
            life: Life::Gone,
            argv: vec!["a\nb\u{1b}".to_owned()],
            ..alive()
        };
        let said = said(Some(&odd));
        assert!(said.contains("host      pid 4711\n") && said.contains("a\\nb\\u{1b}"), "{said}");
        let later = Inspection { started_at: Some(at(NOW + 5)), ..alive() };
        assert!(self::said(Some(&later)).contains("up 0 s"));
    }

    #[test]
    fn lengths_of_time_show_their_two_largest_units() {
        let table = [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3599, "59 min 59 s"), (3661, "1 h 1 min")];
        for (seconds, wanted) in table.into_iter().chain([(86_400, "1 d 0 h"), (200_000, "2 d 7 h")]) {
            assert_eq!(human(Duration::from_secs(seconds)), wanted);
        }
    }
}
