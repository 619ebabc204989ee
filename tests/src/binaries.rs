//! The programs under test. `cargo test` builds no other package's programs, so the first test of a run builds them.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of a program of this workspace: `turnhost`, `compute-host` or `faulty-host`.
///
/// They are taken from the folder that `TURNHOST_BIN_DIR` names; without it they are built once per test run, into
/// the target folder that this test runs from.
///
/// # Panics
/// If they cannot be built, or the program is not there.
pub fn binary(name: &str) -> PathBuf {
    found(folder_once().join(name))
}

/// The path of an example program of this workspace, as `own_agent`. Otherwise as [`binary`].
///
/// # Panics
/// As [`binary`].
pub fn example(name: &str) -> PathBuf {
    found(folder_once().join("examples").join(name))
}

fn folder_once() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(folder)
}

fn found(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "there is no program {}", path.display());
    path
}

fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("TURNHOST_BIN_DIR") {
        return PathBuf::from(folder);
    }
    let test = std::env::current_exe().unwrap_or_else(|error| panic!("where is this test's file? {error}"));
    let Some(folder) = test.parent().and_then(Path::parent) else {
        panic!("{} does not lie in <target>/<profile>/deps; set TURNHOST_BIN_DIR", test.display());
    };
    build_once(folder).unwrap_or_else(|error| {
        panic!("cannot build the programs under test into {}: {error}", folder.display())
    });
    folder.to_path_buf()
}

/// Builds into `folder` unless this run has. A run is one nextest run, or one test binary of `cargo test`.
fn build_once(folder: &Path) -> std::io::Result<()> {
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| format!("pid {}", std::process::id()));
    let lock = File::create(folder.join(".turnhost-testkit.lock"))?;
    lock.lock()?;
    let stamp = folder.join(".turnhost-testkit.built");
    if std::fs::read_to_string(&stamp).is_ok_and(|built| built == run) {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "cargo is no process under test")]
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bins", "--examples"]);
    cargo.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    if let Some(target) = folder.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    // What cargo tells the test about the package would make other packages look changed.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"].iter().any(|start| name.starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    let built = cargo.output()?;
    if !built.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&built.stderr).into_owned()));
    }
    File::create(stamp)?.write_all(run.as_bytes())
}
