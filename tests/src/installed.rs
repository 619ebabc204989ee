//! Programs that others wrote, which `scripts/setup` installs outside the checkout.

use std::path::{Path, PathBuf};

/// The Python of a virtual environment `folder` in the cache, or the one that `variable` names. `None`, said on stderr,
/// if it is not there, so that the test can be skipped.
///
/// # Panics
/// If it is not there and `TURNHOST_REQUIRE_PEER` is set, as in the gate.
#[track_caller]
pub fn installed_python(what: &str, variable: &str, folder: &str) -> Option<PathBuf> {
    let python = std::env::var_os(variable).map_or_else(
        || {
            let cache = std::env::var_os("XDG_CACHE_HOME")
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
                .unwrap_or_default();
            cache.join("turnhost").join(folder).join("bin/python")
        },
        PathBuf::from,
    );
    if python.exists() {
        return Some(python);
    }
    let required = std::env::var_os("TURNHOST_REQUIRE_PEER").is_some();
    assert!(!required, "{what} is required and not at {}: run scripts/setup", python.display());
    #[expect(clippy::print_stderr, reason = "whoever runs the tests must see that one was skipped")]
    {
        eprintln!("SKIPPED: {what} is not at {}: run scripts/setup", python.display());
    }
    None
}
