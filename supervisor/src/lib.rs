//! Owns one compute host.
#![warn(missing_docs)]

mod child;
pub mod config;
mod machine;
mod restart;

pub use config::Config;
pub use turnhost_os::append_log_record;
