//! `compute-host`: the host alone, with the built-in agents.

fn main() -> anyhow::Result<std::process::ExitCode> {
    turnhost_host::compute_host()
}
