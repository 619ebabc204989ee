//! Which processes descend from one, and which carry a marker.

use crate::identity::stat;
use std::collections::HashSet;

/// Children of a process as the kernel lists them now: every thread's, zombies included. Empty if it is gone.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match std::fs::read_to_string(task.path().join("children")) {
            Ok(text) => {
                found.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok()))
            }
            // A kernel without CONFIG_PROC_CHILDREN has no such file: look through every process instead.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && task.path().exists() => {
                return children_by_parent(pid);
            }
            Err(_) => {}
        }
    }
    found
}

fn children_by_parent(pid: i32) -> Vec<i32> {
    all_pids().filter(|child| stat(*child).is_some_and(|stat| stat.ppid == pid)).collect()
}

/// Every process below `root`, nearest first, `root` itself not included, zombies included.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut seen = HashSet::from([root]);
    let mut order = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        order.extend(children(parent).into_iter().filter(|child| seen.insert(*child)));
        let Some(pid) = order.get(next) else { return order };
        parent = *pid;
        next += 1;
    }
}

/// Every pid that `/proc` shows.
pub fn all_pids() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Living processes whose environment at their start held `NAME=VALUE`, whoever their parent is.
///
/// Only processes of the same user can be seen; a process that rewrote its environment block is missed.
pub fn with_environment(name: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{name}={value}");
    all_pids()
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|block| block.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
        })
        .filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead()))
        .collect()
}

/// Living processes of a session (as `setsid` made it).
pub fn in_session(session: i32) -> Vec<i32> {
    all_pids()
        .filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead() && stat.session == session))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Process, eventually};

    #[test]
    fn every_generation_is_found_nearest_first_and_both_ways_of_looking_agree() {
        let process = Process::start("sh -c 'sh -c \"sleep 1000; :\"; :' & sleep 1000; :");
        eventually("four descendants run", || descendants(process.pid()).len() == 4);
        let found = descendants(process.pid());
        let own = |pid: &i32| stat(*pid).is_some_and(|stat| stat.ppid == process.pid());
        assert_eq!(found.iter().position(|pid| !own(pid)), Some(2), "the two children come first: {found:?}");
        let mut listed = children(process.pid());
        let mut searched = children_by_parent(process.pid());
        listed.sort_unstable();
        searched.sort_unstable();
        assert_eq!(listed, searched);
    }

    #[test]
    fn children_of_every_thread_are_found_and_so_are_zombies() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = std::thread::spawn(|| Process::start("exit 0")).join().unwrap();
        eventually("the child is a zombie", || stat(process.pid()).is_some_and(|stat| stat.is_dead()));
        assert!(children(own).contains(&process.pid()));
    }

    #[test]
    fn a_process_that_is_gone_has_no_children() {
        let mut process = Process::start("exit 0");
        process.reap();
        assert_eq!(children(process.pid()), Vec::<i32>::new());
        assert_eq!(descendants(process.pid()), Vec::<i32>::new());
    }

    #[test]
    fn a_marker_is_found_by_its_whole_value_wherever_the_process_went() {
        let mark = format!("mark-{}", std::process::id());
        let process = Process::start(&format!(
            "TURNHOST_OS_TEST={mark} setsid sleep 1000 & TURNHOST_OS_TEST={mark}x sleep 1000 & wait"
        ));
        eventually("both run", || {
            with_environment("TURNHOST_OS_TEST", &format!("{mark}x")).len() == 1
                && with_environment("TURNHOST_OS_TEST", &mark).len() == 1
        });
        let marked = with_environment("TURNHOST_OS_TEST", &mark);
        assert_eq!(in_session(marked[0]), marked, "it leads a session of its own");
        assert_eq!(with_environment("TURNHOST_OS_TES", &mark), Vec::<i32>::new());
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(marked[0]).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        eventually("a dead one is not found", || with_environment("TURNHOST_OS_TEST", &mark).is_empty());
        assert_eq!(in_session(marked[0]), Vec::<i32>::new());
        drop(process);
    }

    #[test]
    fn all_pids_has_ourselves_and_nothing_but_pids() {
        let own = i32::try_from(std::process::id()).unwrap();
        let pids: Vec<i32> = all_pids().collect();
        assert!(pids.contains(&own));
        assert!(pids.iter().all(|pid| *pid > 0));
    }
}
