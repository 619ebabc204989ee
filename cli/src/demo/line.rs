//! The play as JSON lines: pure. What a host or a turn says has the shape it has in `turnhost supervise`, with the time
//! and the host's name in front.

use crate::demo::cast::HostName;
use crate::demo::claims::Claim;
use crate::demo::observed::Observed;
use crate::supervise::answer::line;
use serde::Serialize;
use std::time::Duration;

/// A line of `turnhost supervise`, one JSON object, with `at_ms` and `host` put in front.
pub(super) fn passed(at: Duration, host: HostName, supervised: &[u8]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Head {
        at_ms: u64,
        host: &'static str,
    }
    let mut out = line(&Head { at_ms: millis(at), host: host.as_str() });
    // `{…}` and its newline become `{…,` and what stands behind the other's brace.
    out.truncate(out.len().saturating_sub(2));
    out.push(b',');
    out.extend_from_slice(supervised.get(1..).unwrap_or_default());
    out
}

/// The line of something that no host said. `None` for what hosts and turns say.
pub(super) fn own(at: Duration, observed: &Observed) -> Option<Vec<u8>> {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case", tag = "event")]
    enum Own<'a> {
        Seeded { host: &'a str, sid: &'a str, message_count: Option<u64> },
        Submitted { host: &'a str, sid: &'a str, request_id: String },
        Killed { host: &'a str, pid: i32, signal: &'a str },
        Countdown { host: &'a str, next_start_in_ms: u64 },
        Allowed { host: &'a str, sid: &'a str },
        Refused { message: &'a str },
        Stopping,
        Stopped { host: &'a str, survivors: &'a [i32] },
        Left { pids: &'a [i32] },
    }
    #[derive(Serialize)]
    struct Timed<'a> {
        at_ms: u64,
        #[serde(flatten)]
        own: Own<'a>,
    }
    let own = match observed {
        Observed::State { .. } | Observed::Turn { .. } => return None,
        Observed::Seeded { session, messages } => {
            Own::Seeded { host: session.host().as_str(), sid: session.as_str(), message_count: *messages }
        }
        Observed::Submitted(turn) => Own::Submitted {
            host: turn.session.host().as_str(),
            sid: turn.session.as_str(),
            request_id: turn.id(),
        },
        Observed::Killed { host, pid } => Own::Killed { host: host.as_str(), pid: *pid, signal: "SIGKILL" },
        Observed::Countdown { host, left } => {
            Own::Countdown { host: host.as_str(), next_start_in_ms: millis(*left) }
        }
        Observed::Allowed(session) => Own::Allowed { host: session.host().as_str(), sid: session.as_str() },
        Observed::Refused(message) => Own::Refused { message },
        Observed::Stopping => Own::Stopping,
        Observed::Stopped { host, survivors } => Own::Stopped { host: host.as_str(), survivors },
        Observed::Left(pids) => Own::Left { pids },
    };
    Some(line(&Timed { at_ms: millis(at), own }))
}

/// The line of a claim.
pub(super) fn claim(claim: &Claim) -> Vec<u8> {
    #[derive(Serialize)]
    struct Said<'a> {
        event: &'static str,
        claim: &'a str,
        ok: bool,
        text: &'a str,
    }
    line(&Said { event: "claim", claim: claim.name, ok: claim.holds, text: claim.text })
}

/// The last line: whether every claim holds.
pub(super) fn verdict(ok: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Verdict {
        event: &'static str,
        ok: bool,
    }
    line(&Verdict { event: "verdict", ok })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::cast::Turn;
    use pretty_assertions::assert_eq;

    const AT: Duration = Duration::from_millis(1234);

    #[test]
    fn a_line_of_a_host_is_passed_on_with_its_bytes_as_they_are() {
        let line = passed(AT, HostName::South, b"{\"event\":\"turn\",\"frame\":{\"n\":1.50}}\n");
        let wanted = "{\"at_ms\":1234,\"host\":\"south\",\"event\":\"turn\",\"frame\":{\"n\":1.50}}\n";
        assert_eq!(String::from_utf8(line).expect("utf-8"), wanted);
    }

    #[test]
    fn what_the_demo_does_itself_is_an_event_with_its_time() {
        let submitted = own(AT, &Observed::Submitted(Turn::ALL[0])).expect("a line");
        let wanted = "{\"at_ms\":1234,\"event\":\"submitted\",\"host\":\"north\",\"sid\":\"alice\",\
                      \"request_id\":\"alice-1\"}\n";
        assert_eq!(String::from_utf8(submitted).expect("utf-8"), wanted);
        let stopping = own(AT, &Observed::Stopping).expect("a line");
        assert_eq!(stopping, b"{\"at_ms\":1234,\"event\":\"stopping\"}\n");
    }
}
