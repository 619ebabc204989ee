use super::*;
use crate::agent::testing::{Host, Sent, ended, run as play, start, text, turn};
use crate::turn::AgentResult;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::path::Path;

/// A turn that runs `script` in a shell.
fn shell(script: &str) -> Value {
    json!({"sid": "s", "request_id": "r", "text": "", "agent": {"name": "exec", "argv": ["sh", "-c", script]}})
}

/// A short ladder, for programs that must be killed.
fn impatient() -> Exec {
    let short = Duration::from_millis(100);
    Exec {
        argv: Vec::new(),
        timings: Timings {
            after_interrupt: short,
            after_terminate: short,
            leftovers: short,
            ..Timings::default()
        },
    }
}

async fn run_shell(script: &str) -> (AgentResult, Vec<Sent>) {
    let (result, sent, host) = play(Exec::default(), &shell(script)).await;
    host.assert_nothing_left();
    (result, sent)
}

fn deltas(texts: &[&str]) -> Vec<Sent> {
    texts.iter().map(|text| Sent::Delta((*text).to_owned())).collect()
}

fn complete() -> AgentResult {
    Ok(Answer { text: None, interrupted: false })
}

fn interrupted() -> AgentResult {
    Ok(Answer { text: None, interrupted: true })
}

fn fifo(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}

#[tokio::test]
async fn each_line_is_a_delta_while_the_program_still_runs() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let (context, mut host) =
        turn(&shell(&format!("echo one; read word <{}; echo $word", fifo.display())), 16);
    let task = start(Exec::default(), context);
    assert_eq!(host.next_delta().await, "one\n");
    // The program waits for this word, so the first line cannot have come with its end.
    std::fs::write(&fifo, "two\n").unwrap();
    assert_eq!(host.rest().await, deltas(&["two\n"]));
    assert_eq!(ended(task).await, complete());
    host.assert_nothing_left();
}

#[tokio::test]
async fn lines_that_come_together_are_still_one_delta_each() {
    let (result, sent) = run_shell("printf 'a\\nb\\n\\nc'").await;
    assert_eq!(result, complete());
    assert_eq!(sent, deltas(&["a\n", "b\n", "\n", "c"]));
}

#[tokio::test]
async fn a_line_without_an_end_is_passed_on_while_the_program_waits() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let (context, mut host) = turn(&shell(&format!("printf 'sure? '; read word <{}", fifo.display())), 16);
    let task = start(Exec::default(), context);
    assert_eq!(host.next_delta().await, "sure? ");
    std::fs::write(&fifo, "yes\n").unwrap();
    assert_eq!(host.rest().await, []);
    assert_eq!(ended(task).await, complete());
}

#[tokio::test]
async fn an_exit_code_is_an_agent_exit_with_the_end_of_stderr() {
    let (result, sent) = run_shell("echo out; echo first >&2; printf last >&2; exit 3").await;
    assert_eq!(sent, deltas(&["out\n"]));
    let expected = AgentError {
        reason: FailReason::AgentExit,
        message: "exec: `sh` exited with code 3".to_owned(),
        exit_code: Some(3),
        signal: None,
        stderr_tail: vec!["first".to_owned(), "last".to_owned()],
    };
    assert_eq!(result, Err(expected));
}

#[tokio::test]
async fn a_fatal_signal_is_an_agent_exit_with_its_number() {
    let (result, _) = run_shell("kill -KILL $$").await;
    let error = result.unwrap_err();
    assert_eq!((error.reason, error.exit_code, error.signal), (FailReason::AgentExit, None, Some(9)));
    assert_eq!(error.message, "exec: `sh` was ended by signal 9 (SIGKILL)");
}

#[tokio::test]
async fn a_flood_on_stderr_blocks_nothing_and_its_last_lines_are_kept() {
    let (result, sent) = run_shell("seq 1 200000 >&2; echo done; exit 1").await;
    assert_eq!(text(&sent), "done\n");
    let expected: Vec<String> = (199_921..=200_000).map(|number| number.to_string()).collect();
    assert_eq!(result.unwrap_err().stderr_tail, expected);
}

#[tokio::test]
async fn a_slow_reader_slows_the_program_and_loses_nothing() {
    const BYTES: usize = 10_000_000;
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // 10 MB in lines of 100 bytes.
    let script = format!("yes {} | head -c {BYTES}; touch {}", "x".repeat(99), done.display());
    let (context, mut host) = turn(&shell(&script), 1);
    let task = start(Exec::default(), context);
    assert_eq!(host.next_delta().await.len(), 100);
    // Only what fits in a pipe, one read and one delta can be under way: the program cannot be done.
    assert!(!done.exists());
    let rest = host.rest().await;
    assert_eq!(ended(task).await, complete());
    assert!(done.exists());
    assert_eq!(100 + text(&rest).len(), BYTES);
    assert_eq!(rest.len() + 1, BYTES / 100);
    host.assert_nothing_left();
}

#[tokio::test]
async fn what_was_written_before_the_exit_arrives_however_slow_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let script = format!("printf '1\\n2\\n3\\n'; read word <{}; seq 4 10000", fifo.display());
    // No time at all for what is written after the exit.
    let agent = Exec { timings: Timings { drain: Duration::ZERO, ..Timings::default() }, argv: Vec::new() };
    let (context, mut host) = turn(&shell(&script), 1);
    let pid = host.processes.clone();
    let task = start(agent, context);
    assert_eq!(host.next_delta().await, "1\n");
    // The second line fills the pipe to the host, the third waits for room, and nothing more is read: all the rest, less
    // than a pipe holds, is in the program's pipe when it exits.
    std::fs::write(&fifo, "go\n").unwrap();
    let reaped = async {
        while !pid.pids().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reaped).await.unwrap();
    let expected: String = (2..=10_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(text(&host.rest().await), expected);
    assert_eq!(ended(task).await, complete());
}

#[tokio::test]
async fn a_megabyte_of_prompt_goes_through_a_program_that_writes_as_much() {
    let prompt = "0123456789abcde\n".repeat(65_536);
    let mut frame = shell("cat");
    frame["text"] = json!(prompt);
    let (result, sent, _) = play(Exec::default(), &frame).await;
    assert_eq!(result, complete());
    assert!(text(&sent) == prompt);
}

#[tokio::test]
async fn a_megabyte_of_prompt_for_a_program_that_does_not_read_is_no_failure() {
    let mut frame = shell("echo unread");
    frame["text"] = json!("x".repeat(1 << 20));
    let (result, sent, host) = play(Exec::default(), &frame).await;
    assert_eq!((result, sent), (complete(), deltas(&["unread\n"])));
    host.assert_nothing_left();
}

#[tokio::test]
async fn the_prompt_goes_where_the_mode_says() {
    let show = "printf '%s|' \"$@\"; cat";
    let cases =
        [(json!(null), "|hi -n"), (json!("stdin"), "|hi -n"), (json!("arg"), "hi -n|"), (json!("none"), "|")];
    for (mode, expected) in cases {
        let mut frame = shell(show);
        frame["text"] = json!("hi -n");
        frame["agent"]["argv"] = json!(["sh", "-c", show, "sh"]);
        if !mode.is_null() {
            frame["agent"]["prompt"] = mode.clone();
        }
        let (result, sent, _) = play(Exec::default(), &frame).await;
        assert_eq!((result, text(&sent)), (complete(), expected.to_owned()), "{mode}");
    }
}

#[tokio::test]
async fn an_option_that_waits_for_its_value_takes_the_prompt() {
    let show = "printf '%s|' \"$@\"";
    let cases = [
        (json!(["--yes", "--prompt="]), "--yes|--prompt=-x y|"),
        (json!(["--prompt"]), "--prompt|-x y|"),
        (json!(["A="]), "A=|-x y|"),
    ];
    for (words, expected) in cases {
        let mut frame = shell(show);
        frame["text"] = json!("-x y");
        let argv = [json!(["sh", "-c", show, "sh"]), words.clone()];
        frame["agent"]["argv"] = argv.iter().filter_map(Value::as_array).flatten().cloned().collect();
        frame["agent"]["prompt"] = json!("arg");
        let (result, sent, _) = play(Exec::default(), &frame).await;
        assert_eq!((result, text(&sent)), (complete(), expected.to_owned()), "{words}");
    }
}

#[tokio::test]
async fn the_program_gets_directory_environment_group_and_nothing_else_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let leaked = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let script = "pwd; echo $HERMES_COMPUTE_HOST_CHILD $OWN; test $(ps -o pgid= -p $$) -eq $$ && echo leader; \
                  ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let mut frame = shell(script);
    frame["cwd"] = json!(folder.path().canonicalize().unwrap());
    frame["agent"]["env"] = json!({"OWN": "own value"});
    // As a host that waits for its signals through a descriptor would have it.
    nix::sys::signal::SigSet::all().thread_block().unwrap();
    let (result, sent, _) = play(Exec::default(), &frame).await;
    nix::sys::signal::SigSet::all().thread_unblock().unwrap();
    assert_eq!(result, complete());
    let text = text(&sent);
    let (text, masks) = text.split_once("SigBlk:").unwrap();
    // Descriptor 3 is that of `ls` itself.
    assert_eq!(
        text,
        format!("{}\n1 own value\nleader\n0 1 2 3 ", folder.path().canonicalize().unwrap().display())
    );
    // 32 and 33 belong to the C library, which lets nobody set them.
    let masks = masks.split("SigIgn:").map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & !(3 << 31));
    assert_eq!(masks.collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn a_signal_that_the_host_ignores_ends_the_program_all_the_same() {
    const INNER: &str = "TURNHOST_TEST_IGNORES_HUP";
    let ignores_hup = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
    };
    if std::env::var_os(INNER).is_some() {
        assert!(ignores_hup(&std::fs::read_to_string("/proc/self/status").unwrap()));
        let (_, sent) = run_shell("cat /proc/self/status").await;
        assert!(!ignores_hup(&text(&sent)));
        return;
    }
    // This very test again, in a process that ignores SIGHUP as under nohup.
    let name = "agent::exec::tests::a_signal_that_the_host_ignores_ends_the_program_all_the_same";
    let exe = std::env::current_exe().unwrap();
    let again = format!("trap '' HUP; exec '{}' --exact {name}", exe.display());
    let place = crate::agent::command::Place::HostGroup;
    let mut command =
        crate::agent::command::command(&["sh", "-c", &again], &std::env::temp_dir(), place).unwrap();
    let status =
        tokio::time::timeout(Duration::from_secs(60), command.env(INNER, "1").status()).await.unwrap();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn output_that_is_no_utf8_is_repaired() {
    let (result, sent) =
        run_shell("printf 'a\\377b\\n\\342\\202'; printf '\\254\\n'; printf '\\342\\202'").await;
    assert_eq!(result, complete());
    assert_eq!(text(&sent), "a\u{fffd}b\n\u{20ac}\n\u{fffd}");
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let cases = [
        ("turnhost-no-such-program".to_owned(), "not found in PATH"),
        ("/turnhost/no/such/file".to_owned(), "check the path"),
        (file("plain", "text", 0o600), "chmod +x"),
        (file("orphan", "#!/turnhost/no/such/shell\n", 0o700), "interpreter"),
        (folder.path().display().to_string(), "permission denied"),
    ];
    for (program, advice) in cases {
        let frame = json!({"cwd": folder.path(), "agent": {"name": "exec", "argv": [program]}});
        let (result, sent, host) = play(Exec::default(), &frame).await;
        let error = result.unwrap_err();
        assert_eq!((error.reason, sent), (FailReason::Exception, vec![]));
        assert!(error.message.contains(&program) && error.message.contains(advice), "{}", error.message);
        host.assert_nothing_left();
    }
    for cwd in ["/turnhost/no/such/folder", "/dev/null"] {
        let frame = json!({"cwd": cwd, "agent": {"name": "exec", "argv": ["true"]}});
        let error = play(Exec::default(), &frame).await.0.unwrap_err();
        assert_eq!(error.reason, FailReason::Exception);
        assert!(error.message.contains(cwd) && error.message.contains("another cwd"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_prompt_that_is_no_argument_says_what_to_do() {
    for (prompt, what) in [("x".repeat(1 << 20), "too long"), ("a\0b".to_owned(), "NUL")] {
        let frame = json!({"text": prompt, "agent": {"name": "exec", "argv": ["true"], "prompt": "arg"}});
        let message = play(Exec::default(), &frame).await.0.unwrap_err().message;
        assert!(message.contains(what) && message.contains(r#""prompt":"stdin""#), "{message}");
    }
}

#[tokio::test]
async fn options_that_make_no_sense_are_a_bad_request() {
    let cases = [
        (json!("exec"), "no program named"),
        (json!({"name": "exec"}), "argv"),
        (json!({"name": "exec", "argv": []}), "argv"),
        (json!({"name": "exec", "argv": [""]}), "argv"),
        (json!({"name": "exec", "argv": "ls"}), "invalid type"),
        (json!({"name": "exec", "argv": ["a", "b\0"]}), "argv[1]"),
        (json!({"name": "exec", "argv": ["a"], "prompt": "file"}), "file"),
        (json!({"name": "exec", "argv": ["a"], "env": {"A=B": "c"}}), "A=B"),
        (json!({"name": "exec", "argv": ["a"], "env": {"A": 1}}), "invalid type"),
    ];
    for (agent, what) in cases {
        let (result, sent, _) = play(Exec::default(), &json!({"agent": agent})).await;
        let error = result.unwrap_err();
        assert_eq!((error.reason, sent), (FailReason::BadRequest, vec![]));
        assert!(error.message.starts_with("exec: ") && error.message.contains(what), "{}", error.message);
    }
}

/// Starts `script`, waits until it says `ready`, then interrupts it. Gives the result and what came after.
async fn interrupt_when_ready(agent: Exec, script: &str) -> (AgentResult, String, Host) {
    let (context, mut host) = turn(&shell(script), 16);
    let task = start(agent, context);
    while host.next_delta().await != "ready\n" {}
    assert_eq!(host.processes.pids().len(), 1);
    host.interrupt.send_replace(true);
    let rest = text(&host.rest().await);
    (ended(task).await, rest, host)
}

#[tokio::test]
async fn an_interrupt_is_first_a_sigint_that_the_program_can_obey() {
    let script = "trap 'echo saved; exit 5' INT; echo ready; while :; do sleep 0.01; done";
    let (result, rest, host) = interrupt_when_ready(Exec::default(), script).await;
    assert_eq!((result, rest.as_str()), (interrupted(), "saved\n"));
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_program_deaf_to_sigint_gets_sigterm() {
    let script = "trap '' INT; trap 'echo terminated; exit' TERM; echo ready; while :; do sleep 0.01; done";
    let (result, rest, host) = interrupt_when_ready(impatient(), script).await;
    assert_eq!((result, rest.as_str()), (interrupted(), "terminated\n"));
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_program_deaf_to_both_is_killed_with_what_it_started() {
    let script =
        "trap '' INT TERM; sleep 1000 & setsid sleep 1000 & echo ready; while :; do sleep 0.01; done";
    let (result, rest, host) = interrupt_when_ready(impatient(), script).await;
    assert_eq!((result, rest.as_str()), (interrupted(), ""));
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_stopped_program_is_killed_too() {
    let (result, _, host) = interrupt_when_ready(impatient(), "echo ready; kill -STOP $$").await;
    assert_eq!(result, interrupted());
    host.assert_nothing_left();
}

/// Interrupts a program that obeys at once, while `escapee`, which says `ready` itself, is out of its group's reach.
async fn interrupt_with_escapee(escapee: &str) {
    let (result, _, host) = interrupt_when_ready(impatient(), &format!("{escapee}\nsleep 1000")).await;
    assert_eq!(result, interrupted());
    host.assert_nothing_left();
}

#[tokio::test]
async fn an_interrupt_ends_what_lost_its_parent_and_left_the_group() {
    interrupt_with_escapee("(setsid sh -c 'echo ready; exec sleep 1000' &)").await;
}

#[tokio::test]
async fn an_interrupt_ends_what_is_deaf_to_sigterm_besides() {
    interrupt_with_escapee("(setsid sh -c 'trap \"\" INT TERM; echo ready; sleep 1000' &)").await;
}

#[tokio::test]
async fn an_interrupt_ends_what_left_the_group_and_cleared_its_environment() {
    let unmarked = "env -u TURNHOST_PROGRAM setsid sh -c 'echo ready; exec sleep 1000' &";
    interrupt_with_escapee(unmarked).await;
}

#[tokio::test]
async fn an_interrupt_ends_what_is_started_in_answer_to_it() {
    let restarting = "trap \"setsid sleep 1000 &\" TERM; echo ready; while :; do sleep 0.01; done";
    interrupt_with_escapee(&format!("env -u TURNHOST_PROGRAM setsid sh -c '{restarting}' &")).await;
}

#[tokio::test]
async fn an_interrupt_that_is_already_there_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let (context, mut host) = turn(&shell(&format!("touch {}", ran.display())), 16);
    host.interrupt.send_replace(true);
    assert_eq!(ended(start(Exec::default(), context)).await, interrupted());
    assert_eq!(host.rest().await, []);
    assert!(!ran.exists());
}

#[tokio::test]
async fn an_interrupt_ends_a_turn_whose_output_nobody_takes() {
    let (context, mut host) = turn(&shell("yes"), 1);
    let task = start(impatient(), context);
    host.next_delta().await;
    host.interrupt.send_replace(true);
    assert_eq!(ended(task).await, interrupted());
    host.assert_nothing_left();
}

#[tokio::test]
async fn an_interrupt_after_the_exit_ends_a_turn_whose_output_nobody_takes() {
    let (context, mut host) = turn(&shell("seq 1 5000"), 1);
    let processes = host.processes.clone();
    let task = start(Exec::default(), context);
    host.next_delta().await;
    let reaped = async {
        while !processes.pids().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reaped).await.unwrap();
    host.interrupt.send_replace(true);
    assert_eq!(ended(task).await, interrupted());
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_hold_the_turn() {
    for background in ["sleep 1000", "yes"] {
        let (context, mut host) = turn(&shell(&format!("echo out; {background} & exit 4")), 16);
        let task = start(Exec::default(), context);
        assert_eq!(host.next_delta().await, "out\n");
        host.rest().await;
        assert_eq!(ended(task).await.unwrap_err().exit_code, Some(4));
        // `yes` dies of its closed pipe; a quiet daemon may live on, and is no matter of the turn any more.
        for pid in host.living() {
            let _ = turnhost_os::identity::ProcessHandle::open(pid)
                .and_then(|handle| handle.signal(rustix::process::Signal::KILL));
        }
        host.assert_nothing_left();
    }
}

#[tokio::test]
async fn output_of_a_filter_that_outlives_the_program_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    // The program exits only after its filter runs, and the filter writes only after it sees the end of its input.
    let script = format!("sed 's/^/> /' <{0} & exec 3>{0}; echo hello >&3; exit 0", fifo.display());
    let agent =
        Exec { timings: Timings { drain: Duration::from_secs(60), ..Timings::default() }, argv: Vec::new() };
    let (result, sent, host) = play(agent, &shell(&script)).await;
    assert_eq!((result, sent), (complete(), deltas(&["> hello\n"])));
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_turn_that_is_dropped_leaves_no_process() {
    let script = "trap '' INT TERM; env -u TURNHOST_PROGRAM setsid sh -c 'echo ready; exec sleep 1000' & \
                  while :; do sleep 0.01; done";
    let (context, mut host) = turn(&shell(script), 16);
    let task = start(Exec::default(), context);
    assert_eq!(host.next_delta().await, "ready\n");
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_turn_that_is_over_for_the_host_leaves_no_process() {
    let (context, mut host) = turn(&shell("setsid sleep 1000 & yes"), 1);
    let task = start(Exec::default(), context);
    host.next_delta().await;
    host.work.close();
    assert_eq!(ended(task).await, interrupted());
    host.assert_nothing_left();
}

#[tokio::test]
async fn a_turn_that_names_no_program_gets_the_one_of_the_config_and_another_its_own() {
    let agent = || Exec::default().with_argv(["sh", "-c", "cat; echo \"$A\""].map(str::to_owned).to_vec());
    for (agent_field, wanted) in [
        (json!("exec"), "hi\n"),
        (json!({"name": "exec"}), "hi\n"),
        (json!({"name": "exec", "argv": [], "env": {"A": "b"}}), "hib\n"),
        (json!({"name": "exec", "argv": ["echo", "own"]}), "own\n"),
    ] {
        let (result, sent, _) = play(agent(), &json!({"text": "hi", "agent": agent_field})).await;
        assert_eq!(result, Ok(Answer { text: None, interrupted: false }), "{agent_field}");
        assert_eq!(text(&sent), wanted, "{agent_field}");
    }
}
