//! The driver of `turnhost demo`: stdout, signals and the end. The play itself is [`super::stage`]'s.

use crate::demo::claims;
use crate::demo::screen::{Form, Screen};
use crate::demo::stage::Stage;
use crate::demo::tell::Teller;
use crate::output::{self, Output, Written};
use crate::signals::Signals;
use crate::{exit, say};
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::time::timeout;

/// What the whole play may take; it takes about five seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Plays; gives the exit code.
pub(super) fn run(json: bool) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format_args!("no runtime: {error}"));
            return exit::UNAVAILABLE;
        }
    };
    let code = runtime.block_on(drive(json)).unwrap_or_else(|error| {
        say(format_args!("the demo cannot be set up: {error}"));
        exit::UNAVAILABLE
    });
    // A blocked thread of the runtime would hold up the end; there is nothing left to wait for.
    runtime.shutdown_background();
    code
}

async fn drive(json: bool) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let stdout = output::stdout()?;
    let form = if json {
        Form::Json
    } else if stdout.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        Form::live(stdout.try_clone()?, std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()))
    } else {
        Form::Plain(Teller::default())
    };
    let (output, writing) = Output::start(stdout)?;
    let mut stage = Stage::new(Screen::new(form, output))?;

    let played = tokio::select! {
        biased;
        _ = signals.recv() => None,
        played = timeout(LIMIT, stage.play()) => Some(played),
    };
    let ended = async {
        stage.stop().await;
        let (code, said) = match played {
            None => (exit::INTERRUPTED, Some("interrupted; both hosts are stopped".to_owned())),
            Some(Ok(Err(error))) => {
                let said = format!("no host could be started: {}: {}", error.kind, error.message);
                (exit::for_kind(error.kind), Some(said))
            }
            Some(played) => {
                let claims = claims::judge(stage.seen());
                stage.show_claims(&claims).await;
                let code = if claims.iter().all(|claim| claim.holds) { exit::ENDED } else { exit::FAILED };
                let late = || format!("it was ended because it took longer than {} s", LIMIT.as_secs());
                (code, played.is_err().then(late))
            }
        };
        // The last sender of the output goes with the stage, and then all is written.
        drop(stage);
        let written = writing.finish(Duration::MAX).await;
        // Not before: a line in the middle of a picture would stay there.
        if let Some(said) = said {
            say(said);
        }
        (code, written)
    };
    let written = tokio::select! {
        biased;
        ended = ended => ended,
        // A second signal, or one during the stop: the guards end the hosts when this process is gone.
        _ = signals.recv() => return Ok(exit::INTERRUPTED),
    };
    match written {
        (code, Written::Failed(error)) => {
            say(format_args!("stdout cannot be written, a part is lost: {error}"));
            Ok(if code == exit::ENDED { exit::FAILED } else { code })
        }
        (code, Written::Done | Written::Stalled) => Ok(code),
    }
}
