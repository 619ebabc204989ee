//! Looks at a registry file and at the processes that it names. Changes nothing, locks nothing, signals nobody.

use super::decide::{Facts, Found, is_owner, looks_like};
use super::entry::{self, MAX_BYTES, Recorded};
use super::orphan::Suspect;
use super::{Content, read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use turnhost_os::{memory, tree};

/// What a registry file says, and what is true of it now.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// The recorded host.
    pub host_pid: i32,
    /// Of its hello.
    pub boot_id: String,
    /// Of its hello; "" if it named none.
    pub build_sha: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// When it was recorded; `None` if the file does not say.
    pub recorded_at: Option<SystemTime>,
    /// When it started, to a second; `None` unless it lives.
    pub started_at: Option<SystemTime>,
    /// Whether it lives, and how that is known.
    pub life: Life,
    /// Whose it is.
    pub owner: Owner,
    /// The process that ends its tree: pid, and whether it lives; `None` if none is recorded.
    pub guard: Option<(i32, bool)>,
    /// What it holds; `None` unless it lives.
    pub memory: Option<Memory>,
}

/// Whether a recorded host lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The pid names the recorded process.
    Alive(Evidence),
    /// The pid names another process, which must not be touched.
    Reused(Evidence),
    /// It has ended, and its parent has not taken note of it.
    Zombie,
    /// No process has the pid.
    Gone,
    /// It was recorded before the machine was started last.
    Rebooted,
}

/// How one knows which process a pid names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Pid, start ticks and boot of the machine: beyond doubt.
    Identity,
    /// The file has no start ticks (another program wrote it), so the command line and the time of the start have to do.
    WordsAndTime,
}

/// Whose a recorded host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A supervisor is recorded.
    Supervisor {
        /// Its pid.
        pid: i32,
        /// Whether that very process lives.
        lives: bool,
    },
    /// None is recorded, but the host's parent holds the other end of its pipes.
    Parent {
        /// The parent.
        pid: i32,
    },
    /// None is recorded, and no process looks like one.
    Nobody,
}

/// Resident memory in bytes; what processes share counts for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The host alone.
    pub host: u64,
    /// The host and everything below it.
    pub tree: u64,
    /// How many processes that are, the host included.
    pub processes: usize,
}

/// The registry file says nothing that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the registry {} cannot be used: {reason}", path.display())]
pub struct InspectError {
    /// The file.
    pub path: PathBuf,
    /// A lowercase fragment: why not.
    pub reason: String,
}

/// Reads the registry file at `path` and looks at the processes that it names; `None` if there is no file. Never
/// follows a link and never waits for a fifo. Blocks on the file system and on `/proc`.
///
/// # Errors
/// A file that cannot be read or is no record of a host.
pub fn inspect(path: &Path) -> Result<Option<Inspection>, InspectError> {
    let unusable = |reason: String| InspectError { path: path.to_owned(), reason };
    let recorded = match read(path) {
        Content::Absent => return Ok(None),
        Content::Unreadable => return Err(unusable(why_unreadable(path))),
        Content::Bytes(bytes) => Recorded::parse(&bytes)
            .map_err(|entry::Malformed| unusable("it is no record of a host".to_owned()))?,
    };
    // Opened first and looked at second, so that no other process takes a pid in between.
    let suspect = Suspect::open(&recorded);
    let facts = &suspect.facts;
    let (life, owner) = judge(&recorded, facts);
    let living = facts.host.as_ref().filter(|_| matches!(life, Life::Alive(_)));
    Ok(Some(Inspection {
        host_pid: recorded.host_pid,
        recorded_at: recorded.started_at.and_then(time),
        started_at: living.and_then(|host| time(host.started_at)),
        life,
        owner,
        guard: recorded.guard.as_ref().map(|guard| (guard.pid, facts.guard_lives)),
        memory: living.and_then(|_| memory_of(recorded.host_pid)),
        boot_id: recorded.boot_id,
        build_sha: recorded.build_sha,
        argv: recorded.argv,
    }))
}

/// Pure. Unlike [`super::decide::decide`] it has nothing to signal, so our own parent may well be the host.
fn judge(recorded: &Recorded, facts: &Facts) -> (Life, Owner) {
    let life = life(recorded, facts);
    let owner = match &recorded.supervisor {
        Some(supervisor) => Owner::Supervisor { pid: supervisor.pid, lives: facts.supervisor_lives },
        None => {
            let host = facts.host.as_ref().filter(|_| matches!(life, Life::Alive(_)));
            let parent = host.map(|host| host.parent).filter(is_owner);
            parent.map_or(Owner::Nobody, |parent| Owner::Parent { pid: parent.pid })
        }
    };
    (life, owner)
}

fn life(recorded: &Recorded, facts: &Facts) -> Life {
    let rebooted = !recorded.machine_boot_id.is_empty() && recorded.machine_boot_id != facts.machine_boot_id;
    match (&facts.host, recorded.host_start_ticks) {
        _ if rebooted => Life::Rebooted,
        (None, _) => Life::Gone,
        (Some(Found { start_ticks, .. }), Some(ticks)) if *start_ticks != ticks => {
            Life::Reused(Evidence::Identity)
        }
        (Some(Found { dead: true, .. }), _) => Life::Zombie,
        (Some(_), Some(_)) => Life::Alive(Evidence::Identity),
        (Some(host), None) if looks_like(host, recorded) => Life::Alive(Evidence::WordsAndTime),
        (Some(_), None) => Life::Reused(Evidence::WordsAndTime),
    }
}

fn memory_of(pid: i32) -> Option<Memory> {
    let host = memory::resident_bytes(pid)?;
    let below: Vec<u64> = tree::descendants(pid).into_iter().filter_map(memory::resident_bytes).collect();
    let tree = below.iter().fold(host, |sum, bytes| sum.saturating_add(*bytes));
    Some(Memory { host, tree, processes: 1 + below.len() })
}

fn time(seconds: f64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

fn why_unreadable(path: &Path) -> String {
    match std::fs::symlink_metadata(path) {
        Err(error) => error.to_string(),
        Ok(found) if found.is_symlink() => "it is a symbolic link, which is never followed".to_owned(),
        Ok(found) if found.is_dir() => "it is a folder".to_owned(),
        Ok(found) if !found.is_file() => "it is a pipe, socket or device".to_owned(),
        Ok(found) if found.len() > u64::try_from(MAX_BYTES).unwrap_or(u64::MAX) => {
            format!("it is larger than {MAX_BYTES} bytes")
        }
        Ok(_) => match std::fs::File::open(path) {
            Err(error) => error.to_string(),
            Ok(_) => "it changed while it was read".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::{Own, Parent};
    use super::*;
    use pretty_assertions::assert_eq;
    use turnhost_os::ProcessIdentity;

    const OWN: Own = Own { pid: 900, parent: 500, group: 700, session: 600 };

    fn ours() -> (Recorded, Facts) {
        let identity = |pid| ProcessIdentity { pid, start_ticks: 1, machine_boot_id: "now".to_owned() };
        let recorded = Recorded {
            host_pid: 500,
            boot_id: "b".to_owned(),
            build_sha: String::new(),
            started_at: Some(1000.0),
            argv: vec!["host".to_owned()],
            host_start_ticks: Some(77),
            machine_boot_id: "now".to_owned(),
            supervisor: Some(identity(400)),
            guard: Some(identity(450)),
        };
        let host = Found {
            dead: false,
            start_ticks: 77,
            started_at: 999.0,
            command_line: vec!["host".to_owned()],
            parent: Parent { pid: 450, adopts_orphans: true, holds_pipes: Some(false) },
        };
        let facts = Facts {
            own: OWN,
            machine_boot_id: "now".to_owned(),
            host: Some(host),
            guard_lives: true,
            supervisor_lives: true,
        };
        (recorded, facts)
    }

    /// As another program writes it: no ticks, no supervisor.
    fn foreign() -> (Recorded, Facts) {
        let (recorded, mut facts) = ours();
        host(&mut facts).parent = Parent { pid: 300, adopts_orphans: false, holds_pipes: Some(true) };
        let recorded = Recorded {
            host_start_ticks: None,
            machine_boot_id: String::new(),
            supervisor: None,
            guard: None,
            ..recorded
        };
        (recorded, facts)
    }

    fn host(facts: &mut Facts) -> &mut Found {
        facts.host.as_mut().unwrap()
    }

    #[test]
    fn a_host_with_ticks_is_known_beyond_doubt_even_if_it_is_our_own_parent() {
        let (recorded, mut facts) = ours();
        let supervisor = |lives| Owner::Supervisor { pid: 400, lives };
        assert_eq!(judge(&recorded, &facts), (Life::Alive(Evidence::Identity), supervisor(true)));
        facts.supervisor_lives = false;
        assert_eq!(judge(&recorded, &facts), (Life::Alive(Evidence::Identity), supervisor(false)));
        host(&mut facts).dead = true;
        assert_eq!(judge(&recorded, &facts).0, Life::Zombie);
        host(&mut facts).start_ticks = 78;
        assert_eq!(judge(&recorded, &facts).0, Life::Reused(Evidence::Identity));
        facts.host = None;
        assert_eq!(judge(&recorded, &facts).0, Life::Gone);
    }

    #[test]
    fn a_record_of_an_earlier_boot_names_nobody_whoever_has_the_pid_now() {
        let (recorded, mut facts) = ours();
        facts.machine_boot_id = "later".to_owned();
        assert_eq!(judge(&recorded, &facts).0, Life::Rebooted);
        facts.host = None;
        assert_eq!(judge(&recorded, &facts).0, Life::Rebooted);
    }

    #[test]
    fn without_ticks_words_and_time_decide_and_the_parent_is_the_owner() {
        let (recorded, facts) = foreign();
        let alive = Life::Alive(Evidence::WordsAndTime);
        assert_eq!(judge(&recorded, &facts), (alive, Owner::Parent { pid: 300 }));

        let (recorded, mut facts) = foreign();
        host(&mut facts).parent = Parent { pid: 1, adopts_orphans: true, holds_pipes: Some(false) };
        assert_eq!(judge(&recorded, &facts), (alive, Owner::Nobody));

        let (recorded, mut facts) = foreign();
        host(&mut facts).command_line = vec!["other".to_owned()];
        let reused = Life::Reused(Evidence::WordsAndTime);
        assert_eq!(judge(&recorded, &facts), (reused, Owner::Nobody));

        let (recorded, mut facts) = foreign();
        host(&mut facts).started_at = 2000.0;
        assert_eq!(judge(&recorded, &facts).0, reused);

        let (recorded, mut facts) = foreign();
        host(&mut facts).dead = true;
        assert_eq!(judge(&recorded, &facts), (Life::Zombie, Owner::Nobody));
    }

    #[test]
    fn a_file_that_says_nothing_is_refused_with_the_reason_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        assert_eq!(inspect(&path), Ok(None));
        let reason = || inspect(&path).unwrap_err().reason;
        for text in ["", "{", "[]", "{\"host_pid\":1}", "{\"host_pid\":\"x\"}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(reason(), "it is no record of a host", "{text:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, vec![b' '; MAX_BYTES + 1]).unwrap();
        assert_eq!(reason(), "it is larger than 1048576 bytes");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(reason(), "it is a pipe, socket or device");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(reason(), "it is a folder");
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert_eq!(reason(), "it is a symbolic link, which is never followed");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no lock, nothing set aside");
    }

    #[test]
    fn our_own_process_is_found_alive_with_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.json");
        let own = i32::try_from(std::process::id()).unwrap();
        let identity = ProcessIdentity::of(own).unwrap();
        let (mut recorded, _) = ours();
        recorded.host_pid = own;
        recorded.host_start_ticks = Some(identity.start_ticks);
        recorded.machine_boot_id = identity.machine_boot_id.clone();
        recorded.supervisor = Some(identity);
        std::fs::write(&path, recorded.to_bytes()).unwrap();
        let found = inspect(&path).unwrap().unwrap();
        assert_eq!(found.life, Life::Alive(Evidence::Identity));
        assert_eq!(found.owner, Owner::Supervisor { pid: own, lives: true });
        assert_eq!(found.guard, Some((450, false)), "another boot's guard");
        let memory = found.memory.unwrap();
        assert!(memory.host > 0 && memory.tree >= memory.host && memory.processes >= 1, "{memory:?}");
        let started = SystemTime::now().duration_since(found.started_at.unwrap()).unwrap();
        assert!(started < Duration::from_secs(24 * 3600), "{started:?}");
    }
}
