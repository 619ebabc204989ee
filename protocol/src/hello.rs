//! The first frame of a host: who it is, what it speaks.

use crate::ids::BootId;
use serde::{Deserialize, Serialize};

/// The protocol version that this crate writes and reads. A hello without one is version 0 (the public peer) and works.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a host of ours can do beyond version 0, by name in `hello.capabilities`.
pub const CAPABILITIES: &[&str] =
    &["agent", "event", "interrupt.turn_id", "messages_appended", "respond", "seq", "session.seed.counts"];

/// `hello`: the first line of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The pid as the host sees it: text for people, never signalled.
    pub host_pid: i64,
    /// Names this run of the host.
    pub boot_id: BootId,
    /// Build of the host, "unknown" if none was set at compile time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_sha: Option<String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `HERMES_HOME` as the host found it, "" if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hermes_home: Option<String>,
    /// Protocol version; absent means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u32>,
    /// Names from [`CAPABILITIES`], and others of other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    /// Largest frame in bytes that the host reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_frame_bytes: Option<u64>,
}
