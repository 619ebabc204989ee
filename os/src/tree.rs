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
