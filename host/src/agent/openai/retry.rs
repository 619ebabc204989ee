//! Whether a call that failed is made again, and when: pure.

use std::time::{Duration, SystemTime};

/// Calls of one turn when nothing says otherwise, the first included.
pub(super) const DEFAULT_ATTEMPTS: u32 = 5;
/// First pause between two calls; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that nobody asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Longest pause that a server may ask for. Beyond it the turn ends and says so: a person can decide better.
const LONGEST_ASKED: Duration = Duration::from_secs(120);

/// How a call failed, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server answered with this status.
    Status {
        code: u16,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
        /// No later call can go better: the account's quota is spent.
        is_final: bool,
    },
    /// No connection, or it broke before the first byte of an answer.
    Connection,
    /// Anything that another call would not change.
    Final,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Call again after this long.
    Again(Duration),
    /// It would be pointless.
    GiveUp,
    /// It was tried often enough.
    OutOfAttempts,
    /// The server asks for a pause that is too long.
    AskedTooLong(Duration),
}

/// Decides after `made` calls of at most `max`. `uniform` in [0, 1) spreads the pause.
pub(super) fn decide(failure: Failure, made: u32, max: u32, uniform: f64) -> Decision {
    let asked = match failure {
        Failure::Status { code: 429 | 500..=599, retry_after, is_final: false } => retry_after,
        Failure::Connection => None,
        Failure::Status { .. } | Failure::Final => return Decision::GiveUp,
    };
    if made >= max {
        return if made > 1 { Decision::OutOfAttempts } else { Decision::GiveUp };
    }
    if let Some(asked) = asked.filter(|asked| *asked > LONGEST_ASKED) {
        return Decision::AskedTooLong(asked);
    }
    let doubled = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(made.saturating_sub(1)));
    let pause = doubled.min(LONGEST_PAUSE).mul_f64(0.5 + uniform / 2.0);
    // Never earlier than asked, and not all clients of the server at the same moment.
    Decision::Again(asked.map_or(pause, |asked| pause.max(asked + asked.mul_f64(uniform / 10.0))))
}

/// How long a server asks to be left alone: milliseconds in `retry-after-ms`, or `Retry-After` as seconds or as a date,
/// which counts from the server's own `Date` if that can be read.
pub(super) fn retry_after(
    milliseconds: Option<&str>,
    retry_after: Option<&str>,
    date: Option<&str>,
    now: SystemTime,
) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let in_milliseconds =
        milliseconds.and_then(number).and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    if in_milliseconds.is_some() {
        return in_milliseconds;
    }
    let text = retry_after?.trim();
    if let Some(seconds) = number(text) {
        // A number that no clock can hold is a long time as well.
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let now = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok()).unwrap_or(now);
    // A date that has passed asks for nothing.
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn status(code: u16) -> Failure {
        Failure::Status { code, retry_after: None, is_final: false }
    }

    fn asking(seconds: u64) -> Failure {
        Failure::Status { code: 429, retry_after: Some(Duration::from_secs(seconds)), is_final: false }
    }

    #[test]
    fn only_429_5xx_and_connections_are_tried_again_and_only_so_often() {
        let ms = |ms| Decision::Again(Duration::from_millis(ms));
        let spent = Failure::Status { code: 429, retry_after: None, is_final: true };
        let table = [
            (status(429), 1, 5, ms(250)),
            (status(500), 2, 5, ms(500)),
            (status(503), 3, 5, ms(1000)),
            (status(599), 4, 5, ms(2000)),
            (status(500), 5, 5, Decision::OutOfAttempts),
            (status(500), 6, 5, Decision::OutOfAttempts),
            (status(500), 1, 1, Decision::GiveUp),
            (status(500), 10, 20, ms(4000)),
            (status(500), 4_000_000_000, u32::MAX, ms(4000)),
            (Failure::Connection, 1, 2, ms(250)),
            (Failure::Connection, 2, 2, Decision::OutOfAttempts),
            (Failure::Final, 1, 5, Decision::GiveUp),
            (spent, 1, 5, Decision::GiveUp),
            (status(400), 1, 5, Decision::GiveUp),
            (status(401), 1, 5, Decision::GiveUp),
            (status(404), 1, 5, Decision::GiveUp),
            (status(302), 1, 5, Decision::GiveUp),
            (status(600), 1, 5, Decision::GiveUp),
            (asking(7), 1, 5, ms(7000)),
            (asking(0), 1, 5, ms(250)),
            (asking(120), 1, 5, ms(120_000)),
            (asking(121), 1, 5, Decision::AskedTooLong(Duration::from_secs(121))),
            (asking(7), 5, 5, Decision::OutOfAttempts),
        ];
        for (failure, made, max, expected) in table {
            assert_eq!(decide(failure, made, max, 0.0), expected, "{failure:?} after {made} of {max}");
        }
    }

    #[test]
    fn a_server_asks_in_seconds_in_milliseconds_or_with_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let later = Some("Sun, 06 Nov 1994 08:49:47 GMT");
        let far_off = SystemTime::UNIX_EPOCH;
        let seconds = |number| Some(Duration::from_secs(number));
        let table = [
            ((None, Some("3"), None), now, seconds(3)),
            ((None, Some(" 0.5 "), None), now, Some(Duration::from_millis(500))),
            ((None, Some("1e300"), None), now, Some(Duration::MAX)),
            ((Some("1500"), Some("2"), None), now, Some(Duration::from_millis(1500))),
            ((Some("soon"), Some("2"), None), now, seconds(2)),
            ((None, later, None), now, seconds(10)),
            ((None, later, date), far_off, seconds(10)),
            ((None, date, later), now, seconds(0)),
            ((None, Some("-1"), None), now, None),
            ((None, Some("NaN"), None), now, None),
            ((None, Some("soon"), None), now, None),
            ((None, None, None), now, None),
        ];
        for ((milliseconds, value, date), now, expected) in table {
            assert_eq!(retry_after(milliseconds, value, date, now), expected, "{milliseconds:?} {value:?}");
        }
    }

    proptest! {
        #[test]
        fn a_pause_is_never_shorter_than_asked_and_always_bounded(
            made in 1u32..100, uniform in 0.0f64..1.0, asked in proptest::option::of(0u64..200),
        ) {
            let retry_after = asked.map(Duration::from_secs);
            match decide(Failure::Status { code: 429, retry_after, is_final: false }, made, 100, uniform) {
                Decision::Again(pause) => {
                    prop_assert!(pause >= retry_after.unwrap_or_default());
                    prop_assert!(pause >= FIRST_PAUSE / 2);
                    prop_assert!(pause <= LONGEST_PAUSE.max(LONGEST_ASKED.mul_f64(1.1)));
                }
                Decision::AskedTooLong(long) => prop_assert!(long > LONGEST_ASKED),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn no_header_is_a_panic(a in ".{0,12}", b in ".{0,40}", c in ".{0,40}") {
            let now = SystemTime::UNIX_EPOCH;
            let asked = retry_after(Some(&a), Some(&b), Some(&c), now);
            decide(Failure::Status { code: 429, retry_after: asked, is_final: false }, 1, 2, 0.5);
        }
    }
}
