//! Owns one compute host: starts it, speaks with it, starts it again after a crash, and ends it with everything it
//! started. Every accepted turn ends exactly once, whatever dies in whatever order.
//!
//! ```no_run
//! use turnhost_supervisor::{Config, HostSupervisor, TurnEvent};
//! use turnhost_protocol::frame::TurnStart;
//!
//! # async fn run() -> Result<(), turnhost_supervisor::CallError> {
//! let supervisor = HostSupervisor::new(Config::new(["turnhost", "host"]))?;
//! let mut turn = supervisor
//!     .submit_turn(TurnStart { sid: Some("s1".into()), text: Some("hello".into()), ..TurnStart::default() })
//!     .await?;
//! while let Some(event) = turn.next().await {
//!     match event {
//!         TurnEvent::Delta(delta) => eprint!("{}", delta.text),
//!         TurnEvent::Ended(outcome) => eprintln!("\n{}", outcome.to_json()),
//!         _ => {}
//!     }
//! }
//! supervisor.shutdown(Default::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking::HostSupervisor`] is the same without an async runtime.
//!
//! # Threads
//! One named thread per supervisor (`supervisor-io`) owns the child, its pipes, the timers and every open request. What
//! it has for a turn's owner goes into that turn's mailbox, what concerns the host into the [`EventStream`]s, both
//! bounded and fed without waiting. Callbacks run on a second thread (`supervisor-callbacks`), which only exists if
//! there are any.
//!
//! The library prints nothing (it speaks `tracing`), never waits for children that are not its own, and changes no
//! state of the embedder's process.
#![warn(missing_docs)]

mod actor;
pub mod blocking;
mod child;
mod command;
pub mod config;
mod delivery;
mod endings;
mod environment;
mod error;
mod events;
mod guard;
mod handle;
mod hello;
mod io;
mod ledger;
mod machine;
mod mailbox;
mod pending;
pub mod registry;
mod reseed;
mod restart;
mod spawn;
mod status;
mod sys;
mod tail;
mod turn;

pub use config::{Config, EnvPolicy, Guard, Registry};
pub use error::CallError;
pub use events::{EventStream, HostNotice, ProtocolErrorKind};
pub use guard::guard_main;
pub use guard::pid1::init_if_pid1;
pub use handle::{HostSupervisor, InterruptResult, StopOptions, StopSummary};
pub use machine::{HostState, StopStep};
pub use reseed::ReseedSource;
pub use restart::RestartPolicy;
pub use status::{
    Counters, HostReady, HostStatus, LastExit, OpenRequests, OpenTurn, StateSnapshot, StateWatch, TurnPhase,
};
pub use turn::{TurnDelta, TurnEvent, TurnHandle, TurnOutcome, Wire};
pub use turnhost_os::append_log_record;
pub use turnhost_protocol::{ErrorKind, FailReason};
