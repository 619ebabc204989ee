//! What to do about a recorded host: pure.

use super::entry::Recorded;

/// Seconds by which a process may seem younger than its record: the peer rounds, and records after the start.
const CLOCK_SLACK: f64 = 5.0;

/// The world as it was found, after handles to the processes were opened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// Ourselves, our parent, our group and our session: never to be signalled.
    pub own: Own,
    /// This boot of the machine.
    pub machine_boot_id: String,
    /// Whatever has the recorded host's pid.
    pub host: Option<Found>,
    /// True if the recorded guard, identity and all, lives.
    pub guard_lives: bool,
    /// True if the recorded supervisor, identity and all, lives.
    pub supervisor_lives: bool,
}

/// Pids of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Own {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
}

/// A process that has the recorded pid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// A zombie.
    pub dead: bool,
    pub start_ticks: u64,
    /// Seconds since 1970.
    pub started_at: f64,
    pub command_line: Vec<String>,
    pub parent: Parent,
}

/// The parent of the recorded host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub pid: i32,
    /// Its name is that of a program that adopts orphans.
    pub adopts_orphans: bool,
    /// Whether it holds the other end of the host's stdin or stdout; `None` if that cannot be seen.
    pub holds_pipes: Option<bool>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The host is dead: remove the file.
    NotRunning,
    /// Another process: remove the file, touch nothing else.
    PidReuse,
    /// Somebody has it: touch nothing.
    Owned {
        /// Who.
        pid: i32,
    },
    /// Ours, and nobody's: end it.
    Orphan {
        /// Its guard lives and is told first.
        guarded: bool,
    },
}

/// Judges a record.
pub(super) fn decide(recorded: &Recorded, facts: &Facts) -> Verdict {
    let Own { pid, parent, group, session } = facts.own;
    if [pid, parent, group, session].contains(&recorded.host_pid) {
        return Verdict::PidReuse;
    }
    let Some(host) = facts.host.as_ref().filter(|host| !host.dead) else { return Verdict::NotRunning };
    let owner = match recorded.host_start_ticks {
        Some(ticks) => {
            if host.start_ticks != ticks || recorded.machine_boot_id != facts.machine_boot_id {
                return Verdict::PidReuse;
            }
            // We hold the lock, so an earlier supervisor in this very process has let go of its host.
            recorded
                .supervisor
                .as_ref()
                .map(|supervisor| supervisor.pid)
                .filter(|supervisor| facts.supervisor_lives && *supervisor != pid)
        }
        None => {
            if !looks_like(host, recorded) {
                return Verdict::PidReuse;
            }
            Some(host.parent).filter(is_owner).map(|parent| parent.pid)
        }
    };
    match owner {
        Some(pid) => Verdict::Owned { pid },
        None => Verdict::Orphan { guarded: facts.guard_lives },
    }
}

/// Without ticks: the same words, and not started after it was recorded.
pub(super) fn looks_like(host: &Found, recorded: &Recorded) -> bool {
    same_words(&host.command_line, &recorded.argv)
        && recorded.started_at.is_some_and(|recorded_at| host.started_at <= recorded_at + CLOCK_SLACK)
}

/// The kernel puts the interpreter of a script in front, and a launcher may change the first word.
fn same_words(command_line: &[String], argv: &[String]) -> bool {
    match argv {
        [] => false,
        [_] => command_line.ends_with(argv),
        [_, arguments @ ..] => {
            command_line.ends_with(argv)
                || command_line.split_first().is_some_and(|(_, rest)| rest == arguments)
        }
    }
}

/// Init adopts; a parent that reads as 0 lives outside our pid namespace, where an orphan would have gone to init.
pub(super) fn is_owner(parent: &Parent) -> bool {
    parent.pid != 1 && !parent.adopts_orphans && parent.holds_pipes != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use turnhost_os::ProcessIdentity;

    const HOST: i32 = 500;
    const SUPERVISOR: i32 = 400;
    const OWN: Own = Own { pid: 900, parent: 800, group: 700, session: 600 };

    fn identity(pid: i32) -> ProcessIdentity {
        ProcessIdentity { pid, start_ticks: 1, machine_boot_id: "now".to_owned() }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// A file of ours about a host that lives and whose supervisor is dead.
    fn ours() -> (Recorded, Facts) {
        let recorded = Recorded {
            host_pid: HOST,
            boot_id: "b".to_owned(),
            build_sha: "s".to_owned(),
            started_at: Some(1000.0),
            argv: words(&["host"]),
            host_start_ticks: Some(77),
            machine_boot_id: "now".to_owned(),
            supervisor: Some(identity(SUPERVISOR)),
            guard: Some(identity(450)),
        };
        let host = Found {
            dead: false,
            start_ticks: 77,
            started_at: 999.0,
            command_line: words(&["host"]),
            parent: Parent { pid: 1, adopts_orphans: false, holds_pipes: Some(false) },
        };
        let facts = Facts {
            own: OWN,
            machine_boot_id: "now".to_owned(),
            host: Some(host),
            guard_lives: false,
            supervisor_lives: false,
        };
        (recorded, facts)
    }

    /// A file of the peer about a host that lives and was adopted by init.
    fn peers() -> (Recorded, Facts) {
        let (recorded, mut facts) = ours();
        let recorded = Recorded {
            argv: words(&["/bin/python", "-m", "compute_host"]),
            host_start_ticks: None,
            machine_boot_id: String::new(),
            supervisor: None,
            guard: None,
            ..recorded
        };
        host(&mut facts).command_line = recorded.argv.clone();
        (recorded, facts)
    }

    fn host(facts: &mut Facts) -> &mut Found {
        facts.host.as_mut().unwrap()
    }

    #[test]
    fn an_orphan_of_ours_is_ended_and_its_guard_is_told_first_if_it_lives() {
        let (recorded, mut facts) = ours();
        assert_eq!(decide(&recorded, &facts), Verdict::Orphan { guarded: false });
        facts.guard_lives = true;
        assert_eq!(decide(&recorded, &facts), Verdict::Orphan { guarded: true });
    }

    #[test]
    fn a_host_whose_supervisor_lives_is_owned_unless_that_is_this_process() {
        let (mut recorded, mut facts) = ours();
        facts.supervisor_lives = true;
        assert_eq!(decide(&recorded, &facts), Verdict::Owned { pid: SUPERVISOR });
        recorded.supervisor = Some(identity(OWN.pid));
        assert_eq!(decide(&recorded, &facts), Verdict::Orphan { guarded: false });
        recorded.supervisor = None;
        assert_eq!(decide(&recorded, &facts), Verdict::Orphan { guarded: false });
    }

    #[test]
    fn a_dead_host_is_not_running_whoever_lives_besides() {
        for (recorded, mut facts) in [ours(), peers()] {
            facts.supervisor_lives = true;
            facts.guard_lives = true;
            host(&mut facts).dead = true;
            assert_eq!(decide(&recorded, &facts), Verdict::NotRunning);
            facts.host = None;
            assert_eq!(decide(&recorded, &facts), Verdict::NotRunning);
        }
    }

    #[test]
    fn other_ticks_or_another_boot_are_another_process() {
        for ticks in [76, 78] {
            let (recorded, mut facts) = ours();
            host(&mut facts).start_ticks = ticks;
            assert_eq!(decide(&recorded, &facts), Verdict::PidReuse);
        }
        let (recorded, mut facts) = ours();
        facts.machine_boot_id = "later".to_owned();
        facts.supervisor_lives = true;
        assert_eq!(decide(&recorded, &facts), Verdict::PidReuse);
    }

    #[test]
    fn we_our_parent_our_group_and_our_session_are_never_a_host() {
        for pid in [OWN.pid, OWN.parent, OWN.group, OWN.session] {
            for (mut recorded, facts) in [ours(), peers()] {
                recorded.host_pid = pid;
                assert_eq!(decide(&recorded, &facts), Verdict::PidReuse, "{pid}");
            }
        }
    }

    #[test]
    fn a_file_of_the_peer_is_believed_by_words_and_time() {
        let (recorded, facts) = peers();
        assert_eq!(decide(&recorded, &facts), Verdict::Orphan { guarded: false });
        let table: [(&[&str], bool); 8] = [
            (&["/usr/bin/python3", "-m", "compute_host"], true),
            (&["/usr/bin/env", "/bin/python", "-m", "compute_host"], true),
            (&["notes about compute_host", "1000"], false),
            (&["/bin/python", "-m", "compute_host", "--more"], false),
            (&["/bin/python", "-m", "compute_host_notes"], false),
            (&["/bin/python", "-m"], false),
            (&["x", "y", "-m", "compute_host"], false),
            (&[], false),
        ];
        for (command_line, believed) in table {
            let (recorded, mut facts) = peers();
            host(&mut facts).command_line = words(command_line);
            let verdict = if believed { Verdict::Orphan { guarded: false } } else { Verdict::PidReuse };
            assert_eq!(decide(&recorded, &facts), verdict, "{command_line:?}");
        }
        for (started_at, believed) in
            [(0.0, true), (1004.9, true), (1005.0, true), (1005.1, false), (5000.0, false)]
        {
            let (recorded, mut facts) = peers();
            host(&mut facts).started_at = started_at;
            let verdict = if believed { Verdict::Orphan { guarded: false } } else { Verdict::PidReuse };
            assert_eq!(decide(&recorded, &facts), verdict, "{started_at}");
        }
    }

    #[test]
    fn a_file_of_the_peer_without_words_or_time_proves_nothing() {
        let (mut recorded, mut facts) = peers();
        recorded.started_at = None;
        assert_eq!(decide(&recorded, &facts), Verdict::PidReuse);
        recorded.started_at = Some(1000.0);
        recorded.argv = Vec::new();
        host(&mut facts).command_line = Vec::new();
        assert_eq!(decide(&recorded, &facts), Verdict::PidReuse);
    }

    #[test]
    fn a_program_of_one_word_must_be_the_end_of_the_command_line() {
        for (command_line, believed) in [
            (&["/opt/host"][..], true),
            (&["/bin/sh", "/opt/host"], true),
            (&["/opt/other"], false),
            (&["/opt/host", "more"], false),
        ] {
            let (mut recorded, mut facts) = peers();
            recorded.argv = words(&["/opt/host"]);
            host(&mut facts).command_line = words(command_line);
            assert_eq!(decide(&recorded, &facts) != Verdict::PidReuse, believed, "{command_line:?}");
        }
    }

    #[test]
    fn a_host_of_the_peer_is_owned_while_its_parent_holds_its_pipes() {
        let parent = |pid, adopts_orphans, holds_pipes| Parent { pid, adopts_orphans, holds_pipes };
        for (parent, owned) in [
            (parent(300, false, Some(true)), true),
            (parent(2, false, Some(true)), true),
            // It cannot be looked at: then it may be the owner.
            (parent(300, false, None), true),
            (parent(300, false, Some(false)), false),
            (parent(300, true, Some(true)), false),
            (parent(1, false, Some(true)), false),
            (parent(0, false, None), true),
        ] {
            let (recorded, mut facts) = peers();
            host(&mut facts).parent = parent;
            let verdict =
                if owned { Verdict::Owned { pid: parent.pid } } else { Verdict::Orphan { guarded: false } };
            assert_eq!(decide(&recorded, &facts), verdict, "{parent:?}");
        }
    }
}
