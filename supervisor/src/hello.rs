//! Judges a host's hello: pure.

use crate::config::Config;
use crate::machine::StartFault;
use std::ffi::OsString;
use turnhost_protocol::ErrorKind;
use turnhost_protocol::hello::{Hello, PROTOCOL_VERSION};

/// What an embedder expects of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expectations {
    pub build_sha: Option<String>,
    pub home: Option<String>,
}

impl Expectations {
    /// `environment` is the host's: it names the home if the embedder does not.
    pub(crate) fn new(config: &Config, environment: &[(OsString, OsString)]) -> Self {
        let given = || {
            let (_, value) = environment.iter().find(|(name, _)| name == "HERMES_HOME")?;
            Some(value.to_string_lossy().into_owned())
        };
        Self {
            build_sha: config.expected_build_sha.clone(),
            home: config.expected_home.clone().or_else(given),
        }
    }

    /// # Errors
    /// A mismatch of home, build or protocol version; the words name both values.
    pub(crate) fn judge(&self, hello: &Hello) -> Result<(), StartFault> {
        let version = hello.protocol.unwrap_or(0);
        if version > PROTOCOL_VERSION {
            return Err(StartFault::new(
                ErrorKind::ProtocolMismatch,
                format!(
                    "the host speaks protocol version {version}, this supervisor at most {PROTOCOL_VERSION}; update the one that is older"
                ),
            ));
        }
        if let (Some(expected), Some(found)) = (named(&self.home), named(&hello.hermes_home))
            && expected.trim_end_matches('/') != found.trim_end_matches('/')
        {
            return Err(StartFault::new(
                ErrorKind::HomeMismatch,
                format!(
                    "the host works in the home {found:?}, expected is {expected:?}; give it HERMES_HOME"
                ),
            ));
        }
        if let (Some(expected), Some(found)) = (known(&self.build_sha), known(&hello.build_sha))
            && expected != found
        {
            return Err(StartFault::new(
                ErrorKind::BuildMismatch,
                format!(
                    "the host is build {found:?}, expected is {expected:?}; install that build or expect this one"
                ),
            ));
        }
        Ok(())
    }
}

fn named(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

fn known(value: &Option<String>) -> Option<&str> {
    named(value).filter(|text| *text != "unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn hello(build_sha: &str, home: &str, protocol: Option<u32>) -> Hello {
        Hello {
            host_pid: 2,
            boot_id: "b".into(),
            build_sha: Some(build_sha.to_owned()),
            cwd: None,
            hermes_home: Some(home.to_owned()),
            protocol,
            capabilities: None,
            max_frame_bytes: None,
        }
    }

    fn verdict(expected: (&str, &str), hello: &Hello) -> Result<(), ErrorKind> {
        let some = |text: &str| (text != "-").then(|| text.to_owned());
        let expectations = Expectations { build_sha: some(expected.0), home: some(expected.1) };
        expectations.judge(hello).map_err(|fault| fault.kind)
    }

    #[test]
    fn a_value_is_compared_only_if_both_sides_name_one() {
        for (expected, found, result) in [
            (("-", "-"), hello("x", "/a", None), Ok(())),
            (("x", "/a"), hello("x", "/a", Some(1)), Ok(())),
            (("x", "/a/"), hello("x", "/a", Some(0)), Ok(())),
            (("x", "/a"), hello("", "", None), Ok(())),
            (("x", "/a"), hello("unknown", "", None), Ok(())),
            (("unknown", ""), hello("x", "/b", None), Ok(())),
            (("x", "-"), hello("y", "/a", None), Err(ErrorKind::BuildMismatch)),
            (("-", "/a"), hello("y", "/b", None), Err(ErrorKind::HomeMismatch)),
            (("-", "-"), hello("y", "/b", Some(2)), Err(ErrorKind::ProtocolMismatch)),
        ] {
            assert_eq!(verdict(expected, &found), result, "{expected:?} {found:?}");
        }
    }

    #[test]
    fn a_mismatch_names_both_values() {
        let expectations =
            Expectations { build_sha: Some("mine".to_owned()), home: Some("/mine".to_owned()) };
        let detail = |hello| expectations.judge(&hello).unwrap_err().detail;
        let build = detail(hello("theirs", "/mine", None));
        assert!(build.contains("mine") && build.contains("theirs"), "{build}");
        let home = detail(hello("mine", "/theirs", None));
        assert!(home.contains("/mine") && home.contains("/theirs"), "{home}");
        let protocol = detail(hello("mine", "/mine", Some(7)));
        assert!(protocol.contains('7') && protocol.contains('1'), "{protocol}");
    }

    #[test]
    fn the_home_is_the_one_given_to_the_host_unless_the_embedder_names_one() {
        let environment = [(OsString::from("HERMES_HOME"), OsString::from("/given"))];
        let mut config = Config::new(["host"]);
        assert_eq!(Expectations::new(&config, &environment).home.as_deref(), Some("/given"));
        assert_eq!(Expectations::new(&config, &[]).home, None);
        config.expected_home = Some("/named".to_owned());
        assert_eq!(Expectations::new(&config, &environment).home.as_deref(), Some("/named"));
    }
}
