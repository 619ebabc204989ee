//! Owns one compute host.
#![warn(missing_docs)]

mod child;
pub mod config;
mod environment;
mod machine;
mod registry;
mod restart;
mod spawn;

pub use config::Config;
pub use turnhost_os::append_log_record;
