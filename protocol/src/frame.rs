//! Every frame, one struct each. [`HostCommand`] goes to the host, [`HostEvent`] comes from it.
//!
//! On what is received only `type`, and `request_id` where the frame answers one, are required; every other
//! field may be absent or null. Unknown fields are ignored here and kept in [`crate::Decoded::text`].

use crate::hello::Hello;
use serde::Deserialize;

macro_rules! frame_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $ty:ty,)* })+) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
        })+
    };
}

mod event;
mod from_host;
mod to_host;

pub use event::{EventBody, ToolStatus};
pub use from_host::{
    ControlAck, ControlError, Delivered, Delta, Error, Event, Heartbeat, InterruptAck, Orphan, ReloadMcpAck,
    RespondAck, RespondError, Rpc, SessionSeeded, ShutdownAck, TurnEnd, TurnError, TurnStarted,
};
pub use to_host::{AgentSpec, Control, Interrupt, ReloadMcp, Respond, SessionSeed, Shutdown, TurnStart};

macro_rules! frame_enum {
    ($(#[$doc:meta])* $name:ident { $($wire:literal => $variant:ident($ty:ty),)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $(#[doc = concat!("`", $wire, "`")] $variant($ty),)+
        }
        impl $name {
            /// Every wire name of this direction.
            pub const TYPES: &'static [&'static str] = &[$($wire),+];
            /// The wire name (`type`).
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $wire,)+ }
            }
            /// Reads `text`, one JSON object, as the frame named `type_name`; `None` for an unknown name.
            pub(crate) fn read(type_name: &str, text: &str) -> Option<Result<Self, serde_json::Error>> {
                match type_name {
                    $($wire => Some(serde_json::from_str::<$ty>(text).map(Self::$variant)),)+
                    _ => None,
                }
            }
            /// Appends the frame's fields as a JSON object without `type`.
            pub(crate) fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                match self { $(Self::$variant(frame) => serde_json::to_writer(out, frame),)+ }
            }
            /// The JSON Schema of every frame's fields, by wire name.
            #[cfg(any(test, feature = "schema"))]
            pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($wire, schemars::schema_for!($ty)),)+]
            }
        }
        $(impl From<$ty> for $name {
            fn from(frame: $ty) -> Self {
                Self::$variant(frame)
            }
        })+
    };
}

frame_enum!(
    /// A frame to the host.
    HostCommand {
        "session.seed" => SessionSeed(SessionSeed),
        "turn.start" => TurnStart(TurnStart),
        "interrupt" => Interrupt(Interrupt),
        "control" => Control(Control),
        "reload_mcp" => ReloadMcp(ReloadMcp),
        "respond" => Respond(Respond),
        "shutdown" => Shutdown(Shutdown),
    }
);

frame_enum!(
    /// A frame from the host.
    HostEvent {
        "hello" => Hello(Hello),
        "turn.started" => TurnStarted(TurnStarted),
        "delta" => Delta(Delta),
        "event" => Event(Event),
        "turn.end" => TurnEnd(TurnEnd),
        "turn.error" => TurnError(TurnError),
        "session.seeded" => SessionSeeded(SessionSeeded),
        "interrupt.ack" => InterruptAck(InterruptAck),
        "control.ack" => ControlAck(ControlAck),
        "control.error" => ControlError(ControlError),
        "reload_mcp.ack" => ReloadMcpAck(ReloadMcpAck),
        "respond.ack" => RespondAck(RespondAck),
        "respond.error" => RespondError(RespondError),
        "shutdown.ack" => ShutdownAck(ShutdownAck),
        "rpc" => Rpc(Rpc),
        "hb" => Heartbeat(Heartbeat),
        "orphan" => Orphan(Orphan),
        "error" => Error(Error),
    }
);

/// Reads a field that may be null as well as absent.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
