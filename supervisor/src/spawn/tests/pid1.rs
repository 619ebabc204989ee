//! A supervisor that is pid 1 of a container.

use super::*;
use pretty_assertions::assert_eq;

#[test]
fn as_pid_1_a_program_runs_behind_an_init_that_forwards_signals_and_reaps() {
    let binary = std::env::current_exe().unwrap();
    // A namespace of its own may be forbidden to this user; then there is no pid 1 to be.
    let words = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    #[expect(clippy::disallowed_methods, reason = "the test's own process")]
    let unshare = |argv: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(words).args(argv).env(ROLE, "init").stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    if !unshare(&["true".as_ref()]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return;
    }
    let mut process = unshare(&[binary.as_os_str()]).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut lines = Vec::new();
    while lines.len() < 2 {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    lines.sort();
    assert_eq!(lines, ["orphan\n", "up as 2\n"], "the program is not pid 1");

    let unshare_pid = i32::try_from(process.id()).unwrap();
    let init = tree::children(unshare_pid)[0];
    eventually("the orphan is reaped by pid 1, whose only child is the program", || {
        tree::children(init).len() == 1
    });
    signal(init, Signal::TERM);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "term to 2\n");
    assert_eq!(process.wait().unwrap().code(), Some(9), "pid 1 ends as the program did");
}
