//! What goes over the control socket: one message per packet, first byte the kind. Pure.
//!
//! The socket is SEQPACKET, so a message arrives whole or not at all. Both ends are of one build or of two that agree
//! on [`VERSION`].

use crate::machine::Exit;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;

/// The version of this protocol: the value of `TURNHOST_GUARD`, and what `ready` says.
pub(crate) const VERSION: &str = "1";
/// Longest message. Well under the smallest socket buffer, so that one always fits.
pub(crate) const MAX_MESSAGE: usize = 32 * 1024;
/// Longest argv, environment and working directory together. The kernel takes 6 MiB at most.
pub(crate) const MAX_LAUNCH: usize = 16 * 1024 * 1024;
/// Survivors named in one report.
pub(crate) const MAX_SURVIVORS: usize = 1024;

/// From the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToGuard {
    /// A launch of so many bytes follows in chunks. Carries the host's stdin, stdout and stderr.
    Launch { bytes: u32 },
    /// The next bytes of it.
    Chunk(Vec<u8>),
    /// An order, to be acknowledged by its number.
    Order { number: u32, order: Order },
}

/// What a guard can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// TERM to the tree, then CONT.
    Term,
    /// End the tree now.
    Kill,
    /// CONT to the tree.
    Cont,
}

/// From the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FromGuard {
    /// It can take a launch.
    Ready { version: String },
    /// The host runs. Carries a pidfd of it, opened before anyone could have reaped it.
    Started { pid: i32, start_ticks: u64 },
    /// The host does not run.
    SpawnFailed { stage: Stage, errno: i32 },
    /// The order was carried out.
    Ack { number: u32 },
    /// The host ended.
    Exit(Exit),
    /// Its tree is gone but for these.
    Swept(Vec<i32>),
}

/// Where a spawn failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Receiving what to launch.
    Launch,
    /// `fork`.
    Fork,
    /// Its own process group, the death signal, its descriptors.
    Setup,
    /// The working directory.
    Chdir,
    /// `execve`.
    Exec,
}

impl Stage {
    const ALL: [Stage; 5] = [Stage::Launch, Stage::Fork, Stage::Setup, Stage::Chdir, Stage::Exec];

    /// Its byte on the wire.
    pub(crate) fn code(self) -> u8 {
        match self {
            Stage::Launch => 0,
            Stage::Fork => 1,
            Stage::Setup => 2,
            Stage::Chdir => 3,
            Stage::Exec => 4,
        }
    }

    /// The stage with this byte.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.code() == code)
    }
}

impl ToGuard {
    /// The message's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Launch { bytes } => message(b'L', &[&bytes.to_le_bytes()]),
            Self::Chunk(bytes) => message(b'D', &[bytes]),
            Self::Order { number, order } => {
                let order = match order {
                    Order::Term => b't',
                    Order::Kill => b'k',
                    Order::Cont => b'c',
                };
                message(b'O', &[&[order], &number.to_le_bytes()])
            }
        }
    }

    /// The message, or `None` if it is none of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'L' => Some(Self::Launch { bytes: u32::from_le_bytes(rest.try_into().ok()?) }),
            b'D' => Some(Self::Chunk(rest.to_vec())),
            b'O' => {
                let (order, number) = rest.split_first()?;
                let order = match order {
                    b't' => Order::Term,
                    b'k' => Order::Kill,
                    b'c' => Order::Cont,
                    _ => return None,
                };
                Some(Self::Order { number: u32::from_le_bytes(number.try_into().ok()?), order })
            }
            _ => None,
        }
    }
}

impl FromGuard {
    /// The message's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { version } => message(b'R', &[version.as_bytes()]),
            Self::Started { pid, start_ticks } => {
                message(b'S', &[&pid.to_le_bytes(), &start_ticks.to_le_bytes()])
            }
            Self::SpawnFailed { stage, errno } => message(b'F', &[&[stage.code()], &errno.to_le_bytes()]),
            Self::Ack { number } => message(b'A', &[&number.to_le_bytes()]),
            Self::Exit(exit) => {
                let (kind, value) = match exit {
                    Exit::Code(code) => (b'c', *code),
                    Exit::Signal(signal) => (b's', *signal),
                    Exit::Unknown => (b'u', 0),
                };
                message(b'X', &[&[kind], &value.to_le_bytes()])
            }
            Self::Swept(survivors) => {
                let pids: Vec<u8> =
                    survivors.iter().take(MAX_SURVIVORS).flat_map(|pid| pid.to_le_bytes()).collect();
                message(b'W', &[&pids])
            }
        }
    }

    /// The message, or `None` if it is none of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'R' => Some(Self::Ready { version: String::from_utf8(rest.to_vec()).ok()? }),
            b'S' => {
                let (pid, ticks) = rest.split_first_chunk::<4>()?;
                let start_ticks = u64::from_le_bytes(ticks.try_into().ok()?);
                Some(Self::Started { pid: i32::from_le_bytes(*pid), start_ticks })
            }
            b'F' => {
                let (stage, errno) = rest.split_first()?;
                let errno = i32::from_le_bytes(errno.try_into().ok()?);
                Some(Self::SpawnFailed { stage: Stage::from_code(*stage)?, errno })
            }
            b'A' => Some(Self::Ack { number: u32::from_le_bytes(rest.try_into().ok()?) }),
            b'X' => {
                let (kind, value) = rest.split_first()?;
                let value = i32::from_le_bytes(value.try_into().ok()?);
                let exit = match kind {
                    b'c' => Exit::Code(value),
                    b's' => Exit::Signal(value),
                    b'u' => Exit::Unknown,
                    _ => return None,
                };
                Some(Self::Exit(exit))
            }
            b'W' => {
                let (pids, rest) = rest.as_chunks::<4>();
                rest.is_empty()
                    .then(|| Self::Swept(pids.iter().map(|pid| i32::from_le_bytes(*pid)).collect()))
            }
            _ => None,
        }
    }
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    bytes.push(kind);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// What a guard starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostImage {
    /// Where it starts; absolute.
    pub cwd: CString,
    /// Program and arguments, never empty.
    pub argv: Vec<CString>,
    /// `NAME=VALUE`.
    pub environment: Vec<CString>,
}

impl HostImage {
    /// Three counts would do, but only two can vary: the number of arguments, then NUL-terminated strings.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u32::try_from(self.argv.len()).unwrap_or(u32::MAX).to_le_bytes());
        for text in std::iter::once(&self.cwd).chain(&self.argv).chain(&self.environment) {
            bytes.extend_from_slice(text.as_bytes_with_nul());
        }
        bytes
    }

    /// The inverse; `None` if the bytes were cut or made up.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let mut strings = rest
            .split_inclusive(|byte| *byte == 0)
            .map(|text| CString::from_vec_with_nul(text.to_vec()).ok())
            .collect::<Option<Vec<_>>>()?
            .into_iter();
        let cwd = strings.next()?;
        let argv: Vec<_> = strings.by_ref().take(count).collect();
        (count > 0 && argv.len() == count).then(|| Self { cwd, argv, environment: strings.collect() })
    }

    /// The files that `argv[0]` can mean: itself if it has a slash, else one in each folder of the host's own `PATH`.
    pub(crate) fn candidates(&self) -> Vec<CString> {
        let Some(program) = self.argv.first() else { return Vec::new() };
        if program.as_bytes().is_empty() || program.as_bytes().contains(&b'/') {
            return vec![program.clone()];
        }
        let path = self.environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
        std::env::split_paths(OsStr::from_bytes(path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin")))
            .filter_map(|folder| {
                let file = folder.join(OsStr::from_bytes(program.as_bytes()));
                CString::new(file.into_os_string().into_encoded_bytes()).ok()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn text(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    #[test]
    fn every_message_comes_back_as_it_went() {
        for message in [
            ToGuard::Launch { bytes: 70_000 },
            ToGuard::Chunk(b"a\0b".to_vec()),
            ToGuard::Chunk(Vec::new()),
            ToGuard::Order { number: 1, order: Order::Term },
            ToGuard::Order { number: u32::MAX, order: Order::Kill },
            ToGuard::Order { number: 3, order: Order::Cont },
        ] {
            assert_eq!(ToGuard::decode(&message.encode()), Some(message));
        }
        let stages = Stage::ALL.map(|stage| FromGuard::SpawnFailed { stage, errno: 2 });
        for message in [
            FromGuard::Ready { version: VERSION.to_owned() },
            FromGuard::Started { pid: 4_194_304, start_ticks: u64::MAX },
            FromGuard::Ack { number: 9 },
            FromGuard::Exit(Exit::Code(255)),
            FromGuard::Exit(Exit::Signal(9)),
            FromGuard::Exit(Exit::Unknown),
            FromGuard::Swept(vec![]),
            FromGuard::Swept(vec![2, 70_000]),
        ]
        .into_iter()
        .chain(stages)
        {
            assert_eq!(FromGuard::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn a_message_that_is_cut_or_unknown_is_none() {
        for bytes in [&b""[..], b"?", b"L12", b"O", b"Ot12", b"O?1234", b"Lxxxxx"] {
            assert_eq!(ToGuard::decode(bytes), None, "{bytes:?}");
        }
        for bytes in [
            &b""[..],
            b"?",
            b"S123",
            b"F\x091234",
            b"F\x01123",
            b"A1",
            b"X?1234",
            b"Xc123",
            b"W12345",
            b"R\xff",
        ] {
            assert_eq!(FromGuard::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_report_of_survivors_always_fits_one_message() {
        let many: Vec<i32> = (0..100_000).collect();
        let bytes = FromGuard::Swept(many).encode();
        assert!(bytes.len() <= MAX_MESSAGE);
        let Some(FromGuard::Swept(named)) = FromGuard::decode(&bytes) else { panic!("no report") };
        assert_eq!(named.len(), MAX_SURVIVORS);
    }

    #[test]
    fn a_launch_comes_back_as_it_went_and_a_cut_one_is_none() {
        let image = HostImage {
            cwd: text("/tmp"),
            argv: vec![text("prog"), text(""), text("two words")],
            environment: vec![text("A="), text("B=1")],
        };
        let bytes = image.encode();
        assert_eq!(HostImage::decode(&bytes), Some(image));
        assert_eq!(HostImage::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(HostImage::decode(&bytes[..12]), None);
        assert_eq!(HostImage::decode(&0_u32.to_le_bytes()), None);
        let none = [&0_u32.to_le_bytes()[..], b"/\0"].concat();
        assert_eq!(HostImage::decode(&none), None, "a launch without a program");
    }

    #[test]
    fn a_program_without_a_slash_is_looked_up_in_the_hosts_own_path() {
        let image = |program: &str, path: &str| HostImage {
            cwd: text("/"),
            argv: vec![text(program)],
            environment: vec![text("A=1"), text(path)],
        };
        assert_eq!(image("sh", "PATH=/a:/b/").candidates(), [text("/a/sh"), text("/b/sh")]);
        assert_eq!(image("sh", "PATH=:/b").candidates(), [text("sh"), text("/b/sh")]);
        assert_eq!(image("./sh", "PATH=/a").candidates(), [text("./sh")]);
        assert_eq!(image("", "PATH=/a").candidates(), [text("")]);
        let unset = [text("/usr/local/bin/sh"), text("/usr/bin/sh"), text("/bin/sh")];
        assert_eq!(image("sh", "NOPATH=/a").candidates(), unset);
    }
}
