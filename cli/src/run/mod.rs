//! `turnhost run`: one headless turn on a supervised child, which is this very binary as `turnhost host`.

mod course;
mod drive;
mod plan;
mod text;

use crate::{exit, say};
use clap::ValueEnum;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use turnhost_host::HostArgs;
use turnhost_host::config::Source;
use turnhost_host::options::settings_of_this_process;
use turnhost_protocol::limits::MAX_FRAME_BYTES;

const HELP: &str = "\
The text of the answer goes to stdout as it comes, everything else to stderr. Ctrl+C interrupts
the turn, a second one ends the program. Whatever ends it, no process of the turn is left.
What the program writes to stderr is kept, and its last lines are shown if it fails.
A prompt that begins with a dash is read from stdin: printf '%s' '-x' | turnhost run

Examples:
  turnhost run \"hello\"
  turnhost run --agent exec -- sh -c 'for i in 1 2 3; do echo line $i; sleep 0.5; done; exit 3'
  turnhost run --timeout 60 --propagate-exit - -- my-agent --plain < prompt.txt
  turnhost run --base-url http://127.0.0.1:8080/v1 --model NAME \"hello\"
  turnhost run --json \"hello\" | jq -r 'select(.event == \"turn\") | .frame.text // empty'
  turnhost run --script steps.jsonl \"hello\"          (docs/scripted.md has one to copy)

--json gives one object a line, in the shapes of `turnhost supervise`: {\"event\":\"state\",…} and
{\"event\":\"turn\",\"request_id\":…,\"frame\":{…}}, whose last frame is turn.end or turn.error; and,
where they occur, lagged, rpc, stray, protocol_error and session_lost.";

/// The agents that a host of ours has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentName {
    /// Streams the prompt back, or plays --script
    Scripted,
    /// Runs the program after --, with the prompt on its stdin
    Exec,
    /// Asks an OpenAI-compatible server; OPENAI_API_KEY is its key
    Openai,
}

impl AgentName {
    fn word(self) -> &'static str {
        match self {
            AgentName::Scripted => "scripted",
            AgentName::Exec => "exec",
            AgentName::Openai => "openai",
        }
    }
}

/// Options of `turnhost run`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{HELP}\n\n{}", exit::HELP))]
pub(crate) struct Args {
    /// Which agent runs the turn [default: exec if a program is given, openai if a server or OPENAI_API_KEY is, else
    /// scripted]
    #[arg(long, value_enum, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Base URL of an OpenAI-compatible server [default: OPENAI_BASE_URL, else model.base_url of config.yaml]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model, as the server knows it [default: model.name of config.yaml]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Steps for the scripted agent: a JSON list, or one step a line; docs/scripted.md has them
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Write every event as one JSON line instead of the text
    #[arg(long)]
    json: bool,
    /// Interrupt the turn after this many seconds and exit with 124
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<std::time::Duration>,
    /// Working directory of the turn
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Exit with the program's own code (128 + the number for a signal)
    #[arg(long)]
    propagate_exit: bool,
    /// The prompt; - reads it from stdin, as does none where stdin is no terminal
    prompt: Option<String>,
    /// The program of the exec agent, and its arguments
    #[arg(last = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

/// Runs the turn.
pub(crate) fn main(args: Args) -> ExitCode {
    match prepare(&args) {
        Ok(turn) => ExitCode::from(drive::run(turn)),
        Err(message) => {
            say(message);
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Everything that is known before anything is started.
struct Turn {
    /// The fields of `turn.start`.
    frame: serde_json::Map<String, serde_json::Value>,
    json: bool,
    timeout: Option<std::time::Duration>,
    cwd: Option<PathBuf>,
    propagate_exit: bool,
}

fn prepare(args: &Args) -> Result<Turn, String> {
    let plan = plan::plan(args, &known()?, std::io::stdin().is_terminal())?;
    if let Some(cwd) = &args.cwd {
        match std::fs::metadata(cwd) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(format!("--cwd {}: not a directory", cwd.display())),
            Err(error) => return Err(format!("--cwd {}: {error}", cwd.display())),
        }
    }
    let mut frame = serde_json::Map::new();
    frame.insert("agent".into(), plan.agent);
    if let Some(path) = &args.script {
        let steps = plan::script(path)?;
        let steps = serde_json::to_value(steps).map_err(|error| error.to_string())?;
        frame.insert("script".into(), steps);
    }
    if let Some(chosen) = plan.chosen {
        say(chosen);
    }
    let prompt = match plan.prompt {
        plan::Prompt::Given(text) => text,
        plan::Prompt::Empty => String::new(),
        plan::Prompt::Stdin => read_prompt()?,
    };
    frame.insert("text".into(), prompt.into());
    frame.insert("source".into(), "turnhost run".into());
    Ok(Turn {
        frame,
        json: args.json,
        timeout: args.timeout,
        cwd: args.cwd.clone(),
        propagate_exit: args.propagate_exit,
    })
}

/// What the host will find in the environment and the config.
fn known() -> Result<plan::Known, String> {
    let (settings, _) = settings_of_this_process(&HostArgs::default()).map_err(|error| error.to_string())?;
    let is_named = matches!(settings.agent.source, Source::File { .. });
    Ok(plan::Known {
        agent: is_named.then_some(settings.agent.value),
        has_program: settings.exec_argv.is_some(),
        has_server: settings.base_url.is_some(),
        has_key: settings.api_key.is_some(),
    })
}

/// All of stdin. Bytes that are no UTF-8 become U+FFFD, as everywhere on the wire.
fn read_prompt() -> Result<String, String> {
    if std::io::stdin().is_terminal() {
        say("reading the prompt from the terminal; Ctrl+D ends it");
    }
    let mut bytes = Vec::new();
    let limit = MAX_FRAME_BYTES as u64;
    let read = std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the prompt cannot be read from stdin: {error}"))?;
    if bytes.len() as u64 > limit {
        return Err(format!(
            "the prompt on stdin is over {limit} bytes; pass a file name instead of its contents"
        ));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// What no turn outlives, and no clock overflows at.
const LONGEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 3600);

/// A positive number of seconds; fractions are allowed.
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds, as 30 or 0.5".to_owned())?;
    std::time::Duration::try_from_secs_f64(number)
        .ok()
        .filter(|duration| !duration.is_zero())
        .map(|duration| duration.min(LONGEST_TIMEOUT))
        .ok_or_else(|| "expected a number of seconds above 0, as 30 or 0.5".to_owned())
}
