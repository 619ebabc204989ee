//! The first frame of a host: who it is, what it speaks.

use crate::ids::BootId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The protocol version that this crate writes and reads. A hello without one is version 0 (the public peer) and works.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a host of ours can do beyond version 0, by name in `hello.capabilities`.
pub const CAPABILITIES: &[&str] =
    &["agent", "event", "interrupt.turn_id", "messages_appended", "respond", "seq", "session.seed.counts"];

/// `hello`: the first line of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
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
    /// Names from `CAPABILITIES`, and others of other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    /// Largest frame in bytes that the host reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_frame_bytes: Option<u64>,
}

/// The host speaks a version that this side does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the host speaks protocol version {theirs}, this side versions 0 to {PROTOCOL_VERSION}: install a host and a supervisor of the same release"
)]
pub struct VersionMismatch {
    /// The version in the host's hello.
    pub theirs: u32,
}

impl Hello {
    /// The version that the two sides speak: the host's own, 0 if its hello names none.
    ///
    /// # Errors
    /// [`VersionMismatch`] if it is newer than [`PROTOCOL_VERSION`]. Within a version fields and types are only added,
    /// so a host of a known version works with any supervisor that knows it.
    pub fn check_version(&self) -> Result<u32, VersionMismatch> {
        match self.protocol.unwrap_or(0) {
            version @ 0..=PROTOCOL_VERSION => Ok(version),
            theirs => Err(VersionMismatch { theirs }),
        }
    }

    /// The names in `capabilities`, each once; those of other hosts too.
    pub fn capability_set(&self) -> BTreeSet<&str> {
        self.capabilities.iter().flatten().map(String::as_str).collect()
    }

    /// True if `capabilities` has this name.
    pub fn has_capability(&self, name: &str) -> bool {
        self.capabilities.iter().flatten().any(|known| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(protocol: Option<u32>, capabilities: &[&str]) -> Hello {
        Hello {
            host_pid: 1,
            boot_id: "b1".into(),
            build_sha: None,
            cwd: None,
            hermes_home: None,
            protocol,
            capabilities: (!capabilities.is_empty())
                .then(|| capabilities.iter().map(|name| (*name).to_owned()).collect()),
            max_frame_bytes: None,
        }
    }

    #[test]
    fn versions_up_to_ours_are_spoken_and_later_ones_refused() {
        for (theirs, expected) in [
            (None, Ok(0)),
            (Some(0), Ok(0)),
            (Some(1), Ok(1)),
            (Some(2), Err(VersionMismatch { theirs: 2 })),
            (Some(u32::MAX), Err(VersionMismatch { theirs: u32::MAX })),
        ] {
            assert_eq!(hello(theirs, &[]).check_version(), expected, "{theirs:?}");
        }
    }

    #[test]
    fn the_mismatch_names_both_versions() {
        let message = VersionMismatch { theirs: 7 }.to_string();
        assert!(message.contains("version 7") && message.contains("0 to 1"), "{message}");
    }

    #[test]
    fn capabilities_are_a_set_that_may_hold_unknown_names() {
        let hello = hello(Some(1), &["seq", "of.another.host", "seq"]);
        assert_eq!(hello.capability_set(), BTreeSet::from(["of.another.host", "seq"]));
        assert!(hello.has_capability("seq"));
        assert!(!hello.has_capability("respond"));
        assert!(!self::hello(None, &[]).has_capability("seq"));
    }

    #[test]
    fn our_own_capabilities_are_sorted_and_each_there_once() {
        assert!(CAPABILITIES.is_sorted_by(|a, b| a < b), "{CAPABILITIES:?}");
    }
}
