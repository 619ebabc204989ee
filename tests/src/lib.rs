//! The test kit: a harness for tests that run the real programs.
//!
//! A test opens a [`Scenario`], starts programs in it, talks to them through [`Process`] or [`Supervise`], and drops
//! everything. Whatever was started carries the scenario's marker in its environment, so that the drop finds what is
//! left of any process tree, ends it, and fails the test. Every wait has a deadline and fails with the transcript so
//! far: what was sent, what came back on stdout and stderr, and when.
//!
//! A [`ModelServer`] plays a model's answers, for tests of agents that ask one.
//!
//! The misbehaving host `faulty-host` belongs to this package; `docs/harness.md` is its manual.
#![warn(missing_docs)]

mod binaries;
mod installed;
mod launch;
mod model;
mod process;
mod reader;
mod scenario;
mod supervise;
mod terminal;
mod transcript;
mod wait;

pub use binaries::{binary, example};
pub use installed::installed_python;
pub use launch::Launch;
pub use model::{ModelAnswer, ModelRequest, ModelServer};
pub use process::{Ended, Process, signal};
pub use scenario::{MARKER, Scenario};
pub use supervise::{Supervise, turn};
pub use terminal::Terminal;
pub use wait::{DEADLINE, wait_until};

/// The examples of the guides compile, because the documentation's tests read them. Here, because some are about the
/// supervisor and some about the host.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/embedding.md")]
pub struct Guides;
