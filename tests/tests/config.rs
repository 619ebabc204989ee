//! The config: what a host and the commands make of it, and what is said of its mistakes.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use turnhost_testkit::{Ended, Launch, Process, Scenario};

fn configure(scenario: &Scenario, text: &str) {
    if let Err(error) = std::fs::write(scenario.home().join("config.yaml"), text) {
        panic!("{error}");
    }
}

fn config(scenario: &Scenario, arguments: &[&str]) -> Launch {
    scenario.program("turnhost").args(["config"]).args(arguments)
}

/// Runs to its end with an empty stdin.
#[track_caller]
fn finished(launch: Launch) -> (Ended, Process) {
    let mut process = launch.start();
    process.close_stdin();
    (process.wait_exit(), process)
}

#[track_caller]
fn object(process: &Process) -> Value {
    let [object] = process.frames().try_into().unwrap_or_else(|_| process.fail("one object"));
    object
}

#[test]
fn show_says_what_holds_and_where_it_comes_from_and_never_the_key() {
    let scenario = Scenario::new();
    configure(
        &scenario,
        "model:\n  name: small\n  base_url: http://file/v1\nagent: {system_prompt: Be brief.}\n",
    );
    let launch = config(&scenario, &["show", "--json", "--model", "big"])
        .env("OPENAI_BASE_URL", "http://variable/v1")
        .env("OPENAI_API_KEY", "sk-very-secret");
    let (ended, process) = finished(launch);
    assert_eq!(ended, Ended::Code(0), "{}", process.stderr());
    let shown = object(&process);
    let setting = |name: &str| shown["settings"][name].clone();
    assert_eq!(setting("model.name"), json!({"value": "big", "source": "flag", "name": "--model"}));
    let base_url = json!({"value": "http://variable/v1", "source": "variable", "name": "OPENAI_BASE_URL"});
    assert_eq!(setting("model.base_url"), base_url);
    assert_eq!(
        (&setting("agent.system_prompt")["line"], &setting("agent.name")["value"]),
        (&json!(4), &json!("openai"))
    );
    assert_eq!(setting("OPENAI_API_KEY")["value"], "set");
    assert!(!shown.to_string().contains("very-secret"));

    let (ended, process) = finished(config(&scenario, &["show"]).env("OPENAI_API_KEY", "sk-very-secret"));
    assert_eq!(ended, Ended::Code(0));
    let table = process.strays().join("\n");
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("model.name ").ends_with("config.yaml:2"), "{table}");
    assert!(line("OPENAI_API_KEY ").contains("set"), "{table}");
    assert!(!table.contains("very-secret") && !process.stderr().contains("very-secret"));
}

#[test]
fn check_names_every_mistake_with_its_line_and_the_exit_code_says_whether_there_is_one() {
    let scenario = Scenario::new();
    let (ended, process) = finished(config(&scenario, &["check"]));
    assert_eq!(ended, Ended::Code(0));
    assert!(process.strays()[0].contains("does not exist"), "{:?}", process.strays());

    configure(&scenario, "model: {name: small}\nterminal: {backend: local}\n");
    let (ended, process) = finished(config(&scenario, &["check"]));
    assert_eq!((ended, process.strays().len()), (Ended::Code(0), 1));

    configure(&scenario, "model:\n  base_ulr: x\nagent:\n  scripted:\n    delta_count: many\n");
    let (ended, process) = finished(config(&scenario, &["check"]));
    assert_eq!(ended, Ended::Code(1));
    let path = scenario.home().join("config.yaml").display().to_string();
    let wanted = [
        format!("{path}:2: model.base_ulr: no such key; did you mean model.base_url?"),
        format!("{path}:5: agent.scripted.delta_count: expected a whole number from 0, found text"),
        "2 mistakes".to_owned(),
    ];
    assert_eq!(process.strays(), wanted);
    let (ended, process) = finished(config(&scenario, &["check", "--json"]));
    assert_eq!(
        (ended, &object(&process)["mistyped"][0]["nearest"]),
        (Ended::Code(1), &json!("model.base_url"))
    );
}

#[test]
fn a_config_that_cannot_be_used_keeps_a_host_from_starting_and_nobody_waits_for_a_pipe() {
    let scenario = Scenario::new();
    configure(&scenario, "model: {name: 5}\n");
    for program in [vec!["turnhost", "host"], vec!["compute-host"], vec!["turnhost", "run", "hello"]] {
        let (ended, process) = finished(scenario.program(program[0]).args(&program[1..]));
        assert_eq!(ended, Ended::Code(2), "{program:?}: {}", process.stderr());
        assert!(
            process.stderr().contains("config.yaml:1: model.name: expected text"),
            "{}",
            process.stderr()
        );
        assert_eq!(process.stdout_bytes(), 0, "{program:?}");
    }
    let path = scenario.home().join("config.yaml");
    let made = std::fs::remove_file(&path)
        .and_then(|()| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).map_err(Into::into));
    if let Err(error) = made {
        panic!("{error}");
    }
    for (arguments, code) in [(["config", "check"], 1), (["config", "show"], 2), (["run", "hello"], 2)] {
        let (ended, process) = finished(scenario.program("turnhost").args(arguments));
        assert_eq!(ended, Ended::Code(code), "{arguments:?}");
        let said = process.strays().join("\n") + &process.stderr();
        assert!(said.contains("a pipe, socket or device"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_supervisor_says_why_its_host_did_not_start() {
    let scenario = Scenario::new();
    configure(&scenario, "model: [\n");
    let host = [turnhost_testkit::binary("compute-host").display().to_string()];
    let mut supervise = scenario.supervise(&["--respawn-max", "0"], &host);
    let error = supervise.refused(json!({"op": "start"}));
    assert!(error.to_string().contains("no valid YAML"), "{error}");
    supervise.finish();
}

#[test]
fn turns_get_the_agent_and_its_defaults_from_the_config() {
    let scenario = Scenario::new();
    configure(&scenario, "agent: {scripted: {delta_count: 2, delay_s: 0}}\n");
    let mut host = scenario.host(&[]);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi"}));
    assert_eq!(host.ending("r")["final_response"], "s:hi:0000 s:hi:0001 ");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));

    configure(&scenario, "agent: {name: exec, exec: {argv: [sh, -c, 'cat; echo !']}}\n");
    let mut host = scenario.host(&[]);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi"}));
    assert_eq!(host.ending("r")["final_response"], "hi!\n");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));

    let mut host = scenario.host(&["--agent", "scripted"]);
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": "r", "text": "hi", "delta_count": 1}));
    assert_eq!(host.ending("r")["final_response"], "s:hi:0000 ", "the flag counts first");
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0));
}

#[test]
fn run_takes_its_agent_from_the_config_unless_it_is_told() {
    let scenario = Scenario::new();
    configure(&scenario, "agent: {name: exec, exec: {argv: [sh, -c, 'cat; echo !']}}\n");
    let run = |arguments: &[&str]| {
        let (ended, process) = finished(scenario.program("turnhost").args(["run"]).args(arguments));
        assert_eq!(ended, Ended::Code(0), "{arguments:?}: {}", process.stderr());
        (process.strays().join("\n"), process.stderr())
    };
    let (text, said) = run(&["hi"]);
    assert_eq!(text, "hi!");
    assert!(said.contains("agent exec (") && said.contains("config.yaml"), "{said}");
    assert_eq!(run(&["--agent", "exec", "hi"]).0, "hi!", "the config's program");
    assert_eq!(run(&["hi", "--", "echo", "own"]).0, "own");
    assert!(run(&["--agent", "scripted", "hi"]).0.starts_with("run:hi:0000 "));
    scenario.wait_nothing_left();
}

#[test]
fn an_agent_that_nobody_has_is_named_with_where_it_stands() {
    let scenario = Scenario::new();
    configure(&scenario, "agent:\n  name: nobody\n");
    let (ended, process) = finished(scenario.program("compute-host"));
    assert_eq!(ended, Ended::Code(1));
    let stderr = process.stderr();
    assert!(stderr.contains("unknown agent: nobody (") && stderr.contains("config.yaml:2)"), "{stderr}");
    let (ended, process) = finished(config(&scenario, &["check"]));
    assert_eq!(ended, Ended::Code(1));
    assert!(
        process.strays()[0].contains(":2: agent.name: no agent of this program"),
        "{:?}",
        process.strays()
    );
}

#[test]
fn completions_and_manual_pages_come_from_the_program_itself() {
    let scenario = Scenario::new();
    for (shell, word) in
        [("bash", "complete"), ("zsh", "#compdef turnhost"), ("fish", "complete -c turnhost")]
    {
        let (ended, process) = finished(scenario.program("turnhost").args(["completions", shell]));
        assert_eq!(ended, Ended::Code(0));
        let script = process.strays().join("\n");
        assert!(script.contains(word) && script.contains("supervise"), "{shell}: {script}");
    }
    let (ended, process) = finished(scenario.program("turnhost").args(["man"]));
    assert_eq!(ended, Ended::Code(0));
    assert!(process.strays().iter().any(|line| line.starts_with(".TH turnhost 1")), "{:?}", process.strays());
    let folder = scenario.home().join("man/man1").display().to_string();
    let (ended, process) = finished(scenario.program("turnhost").args(["man", &folder]));
    assert_eq!(ended, Ended::Code(0), "{}", process.stderr());
    for page in ["turnhost.1", "turnhost-run.1", "turnhost-config-check.1"] {
        assert!(scenario.home().join("man/man1").join(page).exists(), "{page}");
    }
}
