//! `faulty-host`: a compute host that misbehaves by script, for people who test their own supervisors.
//! `docs/harness.md` is its manual.

mod grandchild;
mod player;
mod script;
mod serve;
mod stdio;
mod sys;
mod template;

use crate::player::{End, Player};
use crate::script::Numbered;
use clap::{CommandFactory as _, Parser};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  A host that behaves:
    faulty-host --step '{\"hello\":{}}' '{\"serve\":true}'
  One that dies in the middle of a turn:
    faulty-host --step '{\"hello\":{}}' '{\"expect\":\"turn.start\",\"bind\":\"t\"}' \\
      '{\"frame\":{\"type\":\"turn.started\",\"sid\":\"$t.sid\",\"request_id\":\"$t.request_id\"}}' \\
      '{\"signal\":\"KILL\"}'
  One that never says hello and will not go:
    faulty-host --step '{\"ignore\":[\"TERM\"]}' '{\"sleep_ms\":60000}'
  Any of them, in a file, under a supervisor:
    (echo '{\"id\":\"1\",\"op\":\"submit_turn\",\"sid\":\"s\",\"text\":\"hi\"}'; sleep 2) |
      turnhost supervise --no-registry -- faulty-host --script FILE

Exit codes:
  0   the script is over, or `shutdown` came while serving
  2   the script or the command line is wrong, nothing was played
  70  a step could not be done
  71  stdin ended where `expect` waited
  74  stdout or stderr has no reader
  N   what `exit` says

Every step is described in docs/harness.md.";

/// A compute host that plays a script: it speaks the protocol right, wrong or not at all.
#[derive(Parser)]
#[command(name = "faulty-host", version, after_help = EXAMPLES)]
struct Arguments {
    /// A JSON list of steps, or one step per line.
    #[arg(long, value_name = "FILE", conflicts_with = "step")]
    script: Option<PathBuf>,
    /// Steps, each a JSON object; may be given again.
    #[arg(long, value_name = "JSON", num_args = 1..)]
    step: Vec<String>,
    /// Only read the script: exit 0 if it is right, 2 if not.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    grandchild: Option<Hidden>,
}

#[derive(clap::Subcommand)]
enum Hidden {
    /// What a script starts; lives for so many seconds.
    #[command(name = grandchild::WORD, hide = true)]
    Grandchild { kind: grandchild::Kind, seconds: u64 },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Hidden::Grandchild { kind, seconds }) = arguments.grandchild {
        return match grandchild::live(kind, seconds) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(70, &format!("{error:#}")),
        };
    }
    match read(&arguments) {
        Err(complaint) => complain(2, &complaint),
        Ok(_) if arguments.check => ExitCode::SUCCESS,
        Ok(steps) => play(&steps),
    }
}

fn read(arguments: &Arguments) -> Result<Vec<Numbered>, String> {
    match &arguments.script {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read the script {}: {error}", path.display()))?;
            script::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))
        }
        None if arguments.step.is_empty() => Err(format!(
            "no script: give --script FILE or --step JSON\n\n{}",
            Arguments::command().render_usage()
        )),
        None => {
            script::parse_steps(arguments.step.iter().map(String::as_str)).map_err(|error| error.to_string())
        }
    }
}

fn play(steps: &[Numbered]) -> ExitCode {
    let played = Player::new().map_err(End::from).and_then(|mut player| player.play(steps));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Exit(code)) => ExitCode::from(code),
        Err(End::Step { step, detail }) => complain(70, &format!("step {step}: {detail}")),
        Err(End::NoFrame { step, frame_type }) => {
            complain(71, &format!("step {step}: stdin ended before a frame of type `{frame_type}` came"))
        }
        Err(End::Output(error)) => complain(74, &format!("cannot write: {error}")),
    }
}

fn complain(code: u8, complaint: &str) -> ExitCode {
    use std::io::Write as _;
    // Stderr may be gone as well; the exit code tells then.
    let _ = writeln!(std::io::stderr(), "faulty-host: {complaint}");
    ExitCode::from(code)
}
