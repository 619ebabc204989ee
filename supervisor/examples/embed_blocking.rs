//! A front end without an async runtime. Run it with the program of any host:
//!
//! ```sh
//! cargo build --bins
//! cargo run -p turnhost-supervisor --example embed_blocking -- target/debug/compute-host
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use anyhow::Context as _;
use std::time::Duration;
use turnhost_protocol::frame::TurnStart;
use turnhost_supervisor::blocking::HostSupervisor;
use turnhost_supervisor::{Config, HostNotice, StopOptions, TurnEvent, guard_main};

fn main() -> anyhow::Result<()> {
    // First thing: this very program is also the guard that ends the host's processes if it dies itself.
    guard_main();
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let mut config = Config::new(argv);
    // Everything has a default; here a host that says nothing is given up sooner.
    config.hello_timeout = Duration::from_secs(5);
    let supervisor = HostSupervisor::new(config).context("usage: embed_blocking HOST ARGS…")?;

    // Callbacks run on a thread of their own: they may be slow, and may call the supervisor.
    supervisor.on_event(|notice| {
        if let HostNotice::State(state) = notice {
            eprintln!("host is {:?}, incarnation {}", state.state, state.incarnation);
        }
    })?;

    // Two sessions at once; the supervisor is cheap to clone, and each clone is the same one.
    let turns = ["left", "right"].map(|sid| {
        let supervisor = supervisor.clone();
        std::thread::spawn(move || -> anyhow::Result<String> {
            let turn =
                TurnStart { sid: Some(sid.into()), text: Some("hello".into()), ..TurnStart::default() };
            let mut answer = String::new();
            for event in supervisor.submit_turn(turn)? {
                match event {
                    TurnEvent::Delta(delta) => answer.push_str(&delta.text),
                    TurnEvent::Ended(outcome) => answer.push_str(&format!("-> {}", outcome.to_json())),
                    _ => {}
                }
            }
            Ok(answer)
        })
    });
    for turn in turns {
        let answer = turn.join().map_err(|_| anyhow::anyhow!("a turn's thread panicked"))??;
        println!("{answer}");
    }

    let stopped = supervisor.shutdown(StopOptions::default())?;
    eprintln!("host ended with {:?}; left behind: {:?}", stopped.exit_code, stopped.survivors);
    Ok(())
}
