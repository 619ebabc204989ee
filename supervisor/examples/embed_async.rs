//! A front end that owns a host, with tokio. Run it with the program of any host:
//!
//! ```sh
//! cargo build --bins
//! cargo run -p turnhost-supervisor --example embed_async -- target/debug/compute-host
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use anyhow::Context as _;
use std::io::Write as _;
use turnhost_protocol::frame::TurnStart;
use turnhost_supervisor::{Config, HostSupervisor, StopOptions, TurnEvent, TurnOutcome, guard_main};

fn main() -> anyhow::Result<()> {
    // First thing: this very program is also the guard that ends the host's processes if it dies itself.
    guard_main();
    // The supervisor has a thread of its own; any runtime will do for waiting, also one that is busy.
    tokio::runtime::Builder::new_current_thread().build()?.block_on(front_end())
}

async fn front_end() -> anyhow::Result<()> {
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let supervisor = HostSupervisor::new(Config::new(argv)).context("usage: embed_async HOST ARGS…")?;

    // `start` is optional: the first turn starts the host. Here it tells early whether there is one.
    let host = supervisor.start().await?;
    eprintln!("host {} speaks protocol {}", host.pid, host.protocol);

    let turn =
        TurnStart { sid: Some("session-1".into()), text: Some("hello".into()), ..TurnStart::default() };
    // An error here means that no turn exists. Once accepted it ends exactly once, whatever dies.
    let mut turn = supervisor.submit_turn(turn).await?;
    while let Some(event) = turn.next().await {
        match event {
            TurnEvent::Delta(delta) => {
                print!("{}", delta.text);
                std::io::stdout().flush()?;
            }
            TurnEvent::Ended(TurnOutcome::Completed(_)) => println!(),
            TurnEvent::Ended(TurnOutcome::Interrupted(_)) => println!("\ninterrupted"),
            TurnEvent::Ended(TurnOutcome::Failed(error)) => {
                println!("\n{}: {}", error.fail_reason(), error.message);
            }
            // Tool calls, questions, usage, and what later versions add.
            _ => {}
        }
    }

    let stopped = supervisor.shutdown(StopOptions::default()).await?;
    eprintln!("host ended with {:?}; left behind: {:?}", stopped.exit_code, stopped.survivors);
    Ok(())
}
