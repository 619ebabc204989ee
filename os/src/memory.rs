//! How much memory a process holds.

/// Bytes that a process holds in memory, those that it shares with others included. `None` if it is gone.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Process;

    #[test]
    fn a_living_process_holds_some_memory_and_one_that_is_gone_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        let held = resident_bytes(own).unwrap();
        assert!(held > 64 * 1024 && held < 1 << 40, "{held}");
        let mut process = Process::start("exit 0");
        process.reap();
        assert_eq!(resident_bytes(process.pid()), None);
    }
}
