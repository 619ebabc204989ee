//! How much memory this process holds. The one place that knows `sysinfo`.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Reads the process's own figure.
#[derive(Debug)]
pub(crate) struct Memory {
    own: Option<(System, Pid)>,
}

impl Memory {
    /// Ready to read.
    pub(crate) fn new() -> Self {
        Self { own: System::new().ok().zip(sysinfo::get_current_pid().ok()) }
    }

    /// Resident memory in MiB; 0 if the system does not say.
    pub(crate) fn resident_mib(&mut self) -> f64 {
        let Some((system, pid)) = &mut self.own else { return 0.0 };
        let what = ProcessRefreshKind::nothing().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[*pid]), false, what);
        // Bytes of memory are far below the 2^53 up to which this is exact.
        system.process(*pid).map_or(0.0, |process| process.memory() as f64 / (1024.0 * 1024.0))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_running_process_holds_some_memory_and_less_than_the_machine() {
        let resident = super::Memory::new().resident_mib();
        assert!(resident > 0.5 && resident < 1024.0 * 1024.0, "{resident} MiB");
    }
}
