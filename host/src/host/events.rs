//! The events of a turn: the agent's own, and what the host has to say beside them.

use super::Host;
use crate::session::Usage;
use crate::turn::context::Room;
use turnhost_protocol::RawJson;
use turnhost_protocol::frame::EventBody;

/// Tool calls of one turn whose names are remembered for the front end.
const TOOLS_KEPT: usize = 256;

impl Host {
    /// An event as an agent gave it: anything that is no object with `kind` is left out, and says so in the log.
    pub(super) fn on_event(&mut self, id: u64, body: &RawJson, room: Room) {
        let Some(turn) = self.turns.get(id) else { return };
        let fields = body.read::<serde_json::Map<String, serde_json::Value>>().ok();
        let Some(mut fields) =
            fields.filter(|fields| fields.get("kind").is_some_and(|kind| kind.is_string()))
        else {
            let (sid, turn) = (&turn.sid, &turn.request_id);
            tracing::warn!(%sid, %turn, "an event that is no object with `kind` was left out");
            return;
        };
        // The frame's own fields are the host's to say.
        for own in ["type", "sid", "request_id", "seq", "host_ns"] {
            fields.remove(own);
        }
        if fields.get("kind").and_then(|kind| kind.as_str()) == Some("usage") {
            let usage = serde_json::from_value::<Usage>(serde_json::Value::Object(fields.clone()));
            if let (Ok(usage), Some(session)) = (usage, self.sessions.get_mut(&turn.sid)) {
                session.usage.add(usage);
            }
        }
        self.say_fields(id, &fields, Some(room));
    }

    pub(super) fn say_event(&mut self, id: u64, body: &EventBody, room: Option<Room>) {
        if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(body) {
            self.say_fields(id, &fields, room);
        }
    }

    fn say_fields(
        &mut self,
        id: u64,
        fields: &serde_json::Map<String, serde_json::Value>,
        room: Option<Room>,
    ) {
        let Some(turn) = self.turns.get_mut(id) else { return };
        let Ok(body) = RawJson::from_value(fields) else { return };
        let to = turn.address();
        let seq = turn.next_seq();
        self.out.event(&to, seq, &body, room);
        if self.options.rpc_events
            && let Some((kind, payload)) = crate::rpc::mirrored(fields, &mut turn.tools, TOOLS_KEPT)
        {
            self.out.rpc(&to, kind, payload);
        }
    }
}
