//! `turnhost host`: the compute host, as the binary `compute-host` is.

use std::process::ExitCode;

/// Options of `turnhost host`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_: Args) -> ExitCode {
    ExitCode::from(crate::exit::UNAVAILABLE)
}
