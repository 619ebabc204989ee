//! Server-sent events, byte by byte: any split of the stream gives the same events.

/// Longest line, and most data of one event, in bytes: as much as a frame of ours may have.
pub(super) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// Bytes kept of a line that is none of the format, to be shown.
const STRAY_BYTES: usize = 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its `event` field says `error`; other names mean nothing here.
    pub(super) is_error: bool,
    /// Its data lines, joined by newlines.
    pub(super) data: Vec<u8>,
}

/// A line or event longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Bytes to events.
#[derive(Debug)]
pub(super) struct Parser {
    limit: usize,
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    is_error: bool,
    /// The last line ended with CR: an LF now belongs to it.
    after_cr: bool,
    /// No line was read yet, so a BOM may come.
    fresh: bool,
    stray: Option<Vec<u8>>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }
}

impl Parser {
    fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: None,
            is_error: false,
            after_cr: false,
            fresh: true,
            stray: None,
        }
    }

    /// Takes bytes and appends the events that they complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        if std::mem::take(&mut self.after_cr) {
            match bytes.first() {
                Some(b'\n') => bytes = &bytes[1..],
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end])?;
            self.end_line(events)?;
            let cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if cr {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.hold(bytes)
    }

    /// The end of the stream. An event whose blank line is missing counts: servers leave it out after the last one.
    pub(super) fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        self.end_line(events)?;
        self.dispatch(events);
        Ok(())
    }

    /// The first line that was none of the format, cut to a length that can be shown.
    pub(super) fn stray(&self) -> Option<&[u8]> {
        self.stray.as_deref()
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if bytes.len() > self.limit - self.line.len() {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        let held = std::mem::take(&mut self.line);
        let mut line = held.as_slice();
        if std::mem::take(&mut self.fresh) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
                if held + value.len() > self.limit {
                    return Err(TooLong);
                }
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    none => *none = Some(value.to_vec()),
                }
            }
            b"event" => self.is_error = value == b"error",
            // A comment, which keeps the connection alive; an id or a delay, for readers that come back.
            b"" | b"id" | b"retry" => {}
            _ => {
                self.stray.get_or_insert_with(|| line[..line.len().min(STRAY_BYTES)].to_vec());
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let is_error = std::mem::take(&mut self.is_error);
        if let Some(data) = self.data.take() {
            events.push(Event { is_error, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn parsed(chunks: &[&[u8]]) -> Vec<(bool, String)> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.feed(chunk, &mut events).unwrap();
        }
        parser.finish(&mut events).unwrap();
        events
            .into_iter()
            .map(|event| (event.is_error, String::from_utf8_lossy(&event.data).into_owned()))
            .collect()
    }

    fn data(chunks: &[&[u8]]) -> Vec<String> {
        parsed(chunks).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn lines_become_events_as_the_format_says() {
        let table: [(&[u8], &[&str]); 12] = [
            (b"data: a\n\ndata:b\n\n", &["a", "b"]),
            (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]),
            (b"data: a\ndata: b\n\n", &["a\nb"]),
            (b"data:  two spaces\n\n", &[" two spaces"]),
            (b"data\n\n", &[""]),
            (b"data: a: b\n\n", &["a: b"]),
            (b": keep-alive\n\n:\n\ndata: a\n\n", &["a"]),
            (b"id: 7\nretry: 10\nevent: message\ndata: a\n\n", &["a"]),
            (b"\xef\xbb\xbfdata: a\n\n", &["a"]),
            (b"event: ping\n\n\n\n", &[]),
            (b"data: no blank line\n", &["no blank line"]),
            (b"data: no newline", &["no newline"]),
        ];
        for (stream, expected) in table {
            assert_eq!(data(&[stream]), expected, "{}", String::from_utf8_lossy(stream));
        }
    }

    #[test]
    fn only_the_event_that_is_named_error_is_one() {
        let stream = b"event: error\ndata: bad\n\ndata: good\n\nevent: message\ndata: fine\n\n";
        let expected = [(true, "bad".to_owned()), (false, "good".to_owned()), (false, "fine".to_owned())];
        assert_eq!(parsed(&[stream]), expected);
    }

    #[test]
    fn a_line_end_in_two_halves_is_one() {
        assert_eq!(data(&[b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"]), ["a\nb"]);
        assert_eq!(data(&[b"data: a\r", b"", b"\n", b"\n"]), ["a"]);
        assert_eq!(data(&[b"data: a\r", b"\r", b"data: b"]), ["a", "b"]);
    }

    #[test]
    fn the_first_line_that_is_none_of_the_format_is_kept_to_be_shown() {
        let mut parser = Parser::default();
        parser.feed(b"<html>\n<b>\ndata: a\n\n", &mut Vec::new()).unwrap();
        assert_eq!(parser.stray(), Some(&b"<html>"[..]));
        let mut parser = Parser::default();
        parser.feed(&[b'x'; 5000], &mut Vec::new()).unwrap();
        parser.finish(&mut Vec::new()).unwrap();
        assert_eq!(parser.stray().map(<[u8]>::len), Some(STRAY_BYTES));
    }

    #[test]
    fn a_line_and_an_event_are_bounded() {
        let fed = |stream: &[&[u8]]| {
            let mut parser = Parser::with_limit(16);
            stream.iter().try_for_each(|chunk| parser.feed(chunk, &mut Vec::new()))
        };
        assert_eq!(fed(&[b"data: 0123456789\n\n"]), Ok(()), "exactly at the limit");
        assert_eq!(fed(&[b"data: 0123456789a\n\n"]), Err(TooLong));
        assert_eq!(fed(&[&[b'x'; 16], b"x"]), Err(TooLong), "without an end");
        assert_eq!(fed(&[b"data: 01234567\ndata: 0123456\n\n"]), Ok(()), "8 + newline + 7");
        assert_eq!(fed(&[b"data: 01234567\ndata: 01234567\n\n"]), Err(TooLong));
        assert_eq!(fed(&[&b"data: 01234567\n\n".repeat(100)]), Ok(()), "each event counts for itself");
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            lines in proptest::collection::vec(
                (prop_oneof!["data: ?[a-z\u{20ac}]{0,5}", Just(String::new()), Just(": c".to_owned()), Just("event: error".to_owned()), "[a-z]{1,4}"],
                 prop_oneof![Just("\n"), Just("\r"), Just("\r\n")]), 0..30),
            cuts in proptest::collection::vec(0usize..200, 0..20),
        ) {
            let stream: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
            let bytes = stream.as_bytes();
            let mut places: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            places.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for place in places.into_iter().chain([bytes.len()]) {
                chunks.push(&bytes[start..place]);
                start = place;
            }
            prop_assert_eq!(parsed(&chunks), parsed(&[bytes]));
        }
    }
}
