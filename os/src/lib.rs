//! What turnhost needs of the operating system, each thing once: who a process is, which processes descend from
//! it, signals that cannot hit a reused pid, and a log that is never torn. Linux; every file is one matter, so
//! that another system can follow file by file.
//!
//! Both `turnhost-host` and `turnhost-supervisor` stand on this crate; neither knows the other.
#![warn(missing_docs)]

pub mod fd;
pub mod identity;
pub mod log;
pub mod memory;
#[cfg(test)]
mod testing;
pub mod tree;

pub use identity::{ProcessIdentity, machine_boot_id};
pub use log::append_log_record;

/// The name ([`identity::name`]) that every process guard gives itself, by which a host knows that it has one.
pub const GUARD_NAME: &str = "turnhost-guard";
