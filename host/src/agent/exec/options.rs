//! What the turn says about the program, and what to tell people when it cannot be started.

use crate::turn::AgentError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use turnhost_protocol::RawJson;

const EXAMPLE: &str =
    r#"give {"name":"exec","argv":["program","argument"]}, or set agent.exec.argv in the config"#;

/// The agent object of a turn.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Options {
    /// Program and arguments; never empty once it was read.
    #[serde(default)]
    pub(super) argv: Vec<String>,
    #[serde(default)]
    pub(super) prompt: PromptMode,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
}

/// How the program gets the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PromptMode {
    #[default]
    Stdin,
    Arg,
    None,
}

impl Options {
    /// The turn's own options; `default_argv` counts where they name no program.
    pub(super) fn read(raw: Option<&RawJson>, default_argv: &[String]) -> Result<Self, AgentError> {
        let bad = |problem: String| Err(AgentError::bad_request(format!("exec: {problem}")));
        let mut options: Self = match raw.map(RawJson::read).transpose() {
            Ok(options) => options.unwrap_or_default(),
            Err(error) => return bad(format!("agent: {error}; {EXAMPLE}")),
        };
        if options.argv.is_empty() {
            options.argv = default_argv.to_vec();
        }
        if options.argv.is_empty() {
            return bad(format!("no program named; {EXAMPLE}"));
        }
        if options.argv.first().is_none_or(String::is_empty) {
            return bad(format!("agent.argv names no program; {EXAMPLE}"));
        }
        if let Some(position) = options.argv.iter().position(|word| word.contains('\0')) {
            return bad(format!("agent.argv[{position}] holds a NUL, which no argument can; remove it"));
        }
        let wrong = |(name, value): &(&String, &String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((name, _)) = options.env.iter().find(wrong) {
            return bad(format!(
                "agent.env: {name:?} is no name and value of a variable (empty, `=` or NUL inside)"
            ));
        }
        Ok(options)
    }

    /// The prompt as the last argument, or as the value of an option that waits for one, as `--prompt=`.
    pub(super) fn add_prompt(&mut self, prompt: &str) {
        match self.argv.split_last_mut() {
            Some((last, [_, ..])) if last.starts_with('-') && last.ends_with('=') => last.push_str(prompt),
            _ => self.argv.push(prompt.to_owned()),
        }
    }

    pub(super) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }
}

/// Why the program could not be started: the kernel has one number for many causes, so look again.
pub(super) fn start_failed(options: &Options, cwd: &Path, error: &io::Error) -> AgentError {
    let program = options.program();
    let directory = cwd.display();
    AgentError::exception(match std::fs::metadata(cwd) {
        Err(error) => format!(
            "exec: cannot start `{program}` in working directory {directory}: {error}; create it or give the turn another cwd"
        ),
        Ok(found) if !found.is_dir() => format!(
            "exec: cannot start `{program}`: working directory {directory} is no directory; give the turn another cwd"
        ),
        Ok(_) if rustix::fs::access(cwd, rustix::fs::Access::EXEC_OK).is_err() => format!(
            "exec: cannot start `{program}`: no permission to enter working directory {directory}; give the turn another cwd"
        ),
        Ok(_) => format!("exec: cannot start `{program}`: {}", program_failed(options, cwd, error)),
    })
}

fn program_failed(options: &Options, cwd: &Path, error: &io::Error) -> String {
    let program = options.program();
    let is_path = program.contains('/');
    match error.kind() {
        io::ErrorKind::NotFound if !is_path => {
            "not found in PATH; install it, or give the path of the program".to_owned()
        }
        io::ErrorKind::NotFound if cwd.join(program).exists() => {
            "the file exists, but the interpreter in its first line (#!) or its loader does not; install that".to_owned()
        }
        io::ErrorKind::NotFound => {
            format!("no such file (a relative path starts in {}); check the path", cwd.display())
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; it must be a file with the execute bit set (chmod +x), on a file system that allows it"
                .to_owned()
        }
        io::ErrorKind::ArgumentListTooLong => {
            let longest = options.argv.iter().map(String::len).max().unwrap_or(0);
            format!("its arguments are too long for the system (the longest has {longest} bytes); pass the prompt with \"prompt\":\"stdin\"")
        }
        // The program and options were checked before, so it is the prompt as an argument, or the session's home.
        io::ErrorKind::InvalidInput => {
            "the prompt or the profile_home holds a NUL, which no argument or variable can; pass the prompt with \"prompt\":\"stdin\"".to_owned()
        }
        _ => format!("{error}; the machine may be short of processes, memory or descriptors"),
    }
}
