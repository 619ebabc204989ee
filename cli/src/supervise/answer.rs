//! What stdout says in answer to an operation: pure.

use crate::supervise::op::OpId;
use serde::Serialize;
use turnhost_protocol::RawJson;
use turnhost_supervisor::CallError;

/// `{"id":…,"ok":true,"result":…}` and a newline.
pub(crate) fn done(id: &OpId, result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Done<'a, T> {
        id: &'a RawJson,
        ok: bool,
        result: &'a T,
    }
    line(&Done { id: &id.0, ok: true, result })
}

/// `{"id":…,"ok":false,"error":{…}}` and a newline; `id` is null for a line that had none.
pub(crate) fn refused(id: Option<&OpId>, error: &CallError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Refused<'a> {
        id: Option<&'a RawJson>,
        ok: bool,
        error: &'a CallError,
    }
    line(&Refused { id: id.map(|id| &id.0), ok: false, error })
}

/// One value as one line.
pub(crate) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let written = serde_json::to_writer(&mut out, value);
    debug_assert!(written.is_ok(), "our own types serialise");
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnhost_protocol::ErrorKind;

    fn text(line: Vec<u8>) -> String {
        String::from_utf8(line).expect("utf-8")
    }

    #[test]
    fn an_answer_is_one_line_with_the_id_as_it_came() {
        let id = OpId(RawJson::parse("1.50").expect("json"));
        assert_eq!(text(done(&id, &[1])), "{\"id\":1.50,\"ok\":true,\"result\":[1]}\n");
        let error = CallError::new(ErrorKind::Busy, "session busy\n");
        let error_text = "{\"kind\":\"busy\",\"message\":\"session busy\\n\"}";
        assert_eq!(
            text(refused(Some(&id), &error)),
            format!("{{\"id\":1.50,\"ok\":false,\"error\":{error_text}}}\n")
        );
        assert_eq!(
            text(refused(None, &error)),
            format!("{{\"id\":null,\"ok\":false,\"error\":{error_text}}}\n")
        );
    }
}
