//! The content of a registry file: pure.
//!
//! One JSON object. The first five fields are the peer's and mean the same there; it ignores the rest.

use serde_json::{Map, Value, json};
use turnhost_os::ProcessIdentity;

/// Longest file that is read; ours are under a page, a long argv included.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// What a file says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recorded {
    pub host_pid: i32,
    pub boot_id: String,
    pub build_sha: String,
    /// Seconds since 1970, when the host was recorded.
    pub started_at: Option<f64>,
    pub argv: Vec<String>,
    /// Absent in a file of the peer, as all that follow.
    pub host_start_ticks: Option<u64>,
    pub machine_boot_id: String,
    pub supervisor: Option<ProcessIdentity>,
    pub guard: Option<ProcessIdentity>,
}

/// The file says nothing that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Recorded {
    /// Reads a file. `host_pid` must be a whole number above 1, and a field of ours must have its type.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_BYTES {
            return Err(Malformed);
        }
        let fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(|_| Malformed)?;
        let host_pid = pid(&fields, "host_pid")?.ok_or(Malformed)?;
        let machine_boot_id = text(&fields, "machine_boot_id");
        let identity = |pid_field: &str, ticks_field: &str| {
            let (pid, ticks) = (pid(&fields, pid_field)?, number(&fields, ticks_field)?);
            Ok(pid.zip(ticks).map(|(pid, start_ticks)| ProcessIdentity {
                pid,
                start_ticks,
                machine_boot_id: machine_boot_id.clone(),
            }))
        };
        Ok(Self {
            host_pid,
            boot_id: text(&fields, "boot_id"),
            build_sha: text(&fields, "build_sha"),
            started_at: fields.get("started_at").and_then(Value::as_f64),
            argv: words(&fields, "argv"),
            host_start_ticks: number(&fields, "host_start_ticks")?,
            supervisor: identity("supervisor_pid", "supervisor_start_ticks")?,
            guard: identity("guard_pid", "guard_start_ticks")?,
            machine_boot_id,
        })
    }

    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        set("host_pid", json!(self.host_pid));
        set("boot_id", json!(self.boot_id));
        set("build_sha", json!(self.build_sha));
        set("started_at", json!(self.started_at));
        set("argv", json!(self.argv));
        set("machine_boot_id", json!(self.machine_boot_id));
        if let Some(ticks) = self.host_start_ticks {
            set("host_start_ticks", json!(ticks));
        }
        for (who, identity) in [("supervisor", &self.supervisor), ("guard", &self.guard)] {
            if let Some(identity) = identity {
                set(&format!("{who}_pid"), json!(identity.pid));
                set(&format!("{who}_start_ticks"), json!(identity.start_ticks));
            }
        }
        let mut bytes = Value::Object(fields).to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }

    /// The host beyond doubt, where the file has its ticks.
    pub(super) fn host(&self) -> Option<ProcessIdentity> {
        self.host_start_ticks.map(|start_ticks| ProcessIdentity {
            pid: self.host_pid,
            start_ticks,
            machine_boot_id: self.machine_boot_id.clone(),
        })
    }
}

/// Pids of 1 and below name init, groups or everyone: such a file is not believed at all.
fn pid(fields: &Map<String, Value>, name: &str) -> Result<Option<i32>, Malformed> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let pid = value.as_i64().and_then(|pid| i32::try_from(pid).ok()).ok_or(Malformed)?;
            if pid > 1 { Ok(Some(pid)) } else { Err(Malformed) }
        }
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>, Malformed> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or(Malformed),
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> String {
    fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn words(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let words = fields.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // One word that is none makes the rest meaningless.
    words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn identity(pid: i32, start_ticks: u64) -> ProcessIdentity {
        ProcessIdentity { pid, start_ticks, machine_boot_id: "machine".to_owned() }
    }

    fn full() -> Recorded {
        Recorded {
            host_pid: 4711,
            boot_id: "boot-1".to_owned(),
            build_sha: "abc".to_owned(),
            started_at: Some(1_760_000_000.25),
            argv: vec!["host".to_owned(), "--fast".to_owned()],
            host_start_ticks: Some(u64::MAX),
            machine_boot_id: "machine".to_owned(),
            supervisor: Some(identity(4000, 7)),
            guard: Some(identity(4710, 8)),
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was_written() {
        let mut entry = full();
        assert_eq!(Recorded::parse(&entry.to_bytes()), Ok(entry.clone()));
        entry.guard = None;
        assert_eq!(Recorded::parse(&entry.to_bytes()), Ok(entry));
    }

    #[test]
    fn the_fields_of_the_peer_have_its_names_and_types() {
        let value: Value = serde_json::from_slice(&full().to_bytes()).unwrap();
        assert_eq!(value["host_pid"], json!(4711));
        assert_eq!(value["boot_id"], json!("boot-1"));
        assert_eq!(value["build_sha"], json!("abc"));
        assert_eq!(value["started_at"], json!(1_760_000_000.25));
        assert_eq!(value["argv"], json!(["host", "--fast"]));
        assert_eq!(value["host_start_ticks"], json!(u64::MAX));
        assert_eq!(value["supervisor_pid"], json!(4000));
        assert_eq!(value["supervisor_start_ticks"], json!(7));
        assert_eq!(value["guard_pid"], json!(4710));
        assert_eq!(value["guard_start_ticks"], json!(8));
        assert_eq!(value["machine_boot_id"], json!("machine"));
    }

    #[test]
    fn a_file_of_the_peer_is_read() {
        let bytes = br#"{"argv": ["python", "-m", "m"], "boot_id": "b", "build_sha": "s", "host_pid": 77, "started_at": 5}"#;
        let expected = Recorded {
            host_pid: 77,
            boot_id: "b".to_owned(),
            build_sha: "s".to_owned(),
            started_at: Some(5.0),
            argv: ["python", "-m", "m"].map(str::to_owned).to_vec(),
            host_start_ticks: None,
            machine_boot_id: String::new(),
            supervisor: None,
            guard: None,
        };
        assert_eq!(Recorded::parse(bytes), Ok(expected.clone()));
        assert_eq!(expected.host(), None);
        assert_eq!(full().host(), Some(identity(4711, u64::MAX)));
    }

    #[test]
    fn pids_that_are_none_or_name_more_than_one_process_make_a_file_malformed() {
        for pid in [
            "0",
            "-1",
            "1",
            "-4711",
            "4294967297",
            "2147483648",
            "1e3",
            "12.0",
            "\"12\"",
            "true",
            "null",
            "[]",
            "{}",
        ] {
            let file = format!("{{\"host_pid\": {pid}}}");
            assert_eq!(Recorded::parse(file.as_bytes()), Err(Malformed), "{pid}");
            let file = format!("{{\"host_pid\": 12, \"guard_pid\": {pid}, \"supervisor_pid\": {pid}}}");
            let accepted = pid == "null";
            assert_eq!(Recorded::parse(file.as_bytes()).is_ok(), accepted, "{pid}");
        }
        assert!(Recorded::parse(br#"{"host_pid": 2}"#).is_ok());
        assert!(Recorded::parse(br#"{"host_pid": 2147483647}"#).is_ok());
    }

    #[test]
    fn what_is_no_object_or_has_a_field_of_another_type_is_malformed() {
        let nuls = [0_u8; 300];
        let table: [&[u8]; 10] = [
            b"",
            &nuls,
            b"{\"host_pid\":12",
            b"[12]",
            b"12",
            b"{}",
            b"{\"host_pid\": 12, \"host_start_ticks\": \"5\"}",
            b"{\"host_pid\": 12, \"host_start_ticks\": -5}",
            b"{\"host_pid\": 12, \"guard_pid\": 13, \"guard_start_ticks\": 1.5}",
            b"{\"host_pid\": 12, \"boot_id\": \"\xff\"}",
        ];
        for bytes in table {
            assert_eq!(Recorded::parse(bytes), Err(Malformed), "{:?}", String::from_utf8_lossy(bytes));
        }
        let mut long = b"{\"host_pid\": 12}".to_vec();
        long.resize(1024 * 1024, b' ');
        assert!(Recorded::parse(&long).is_ok(), "a mebibyte");
        long.push(b' ');
        assert_eq!(Recorded::parse(&long), Err(Malformed), "and a byte");
    }

    #[test]
    fn an_argv_with_anything_but_words_is_no_argv() {
        let parsed = Recorded::parse(br#"{"host_pid": 12, "argv": ["a", 1]}"#).unwrap();
        assert_eq!(parsed.argv, Vec::<String>::new());
    }
}
