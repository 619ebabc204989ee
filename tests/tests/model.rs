//! The `openai` agent as people run it, against a model server that plays a script.

use nix::sys::signal::Signal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Duration;
use turnhost_testkit::{DEADLINE, Ended, Launch, ModelAnswer, ModelServer, Process, Scenario, wait_until};

const KEY: &str = "sk-test-0123456789abcdef";

fn launch(scenario: &Scenario) -> Launch {
    scenario.program("compute-host").args(["--agent", "openai", "--model", "m1"])
}

/// A host whose turns go to this server.
fn host(scenario: &Scenario, server: &ModelServer) -> Process {
    launch(scenario).env("OPENAI_BASE_URL", server.base_url()).start()
}

fn start(host: &Process, request_id: &str, text: &str) {
    host.send(&json!({"type": "turn.start", "sid": "s", "request_id": request_id, "text": text}));
}

/// A turn with options of its own.
fn start_with(host: &Process, request_id: &str, mut options: Value) {
    options["name"] = json!("openai");
    host.send(
        &json!({"type": "turn.start", "sid": "s", "request_id": request_id, "text": "hi", "agent": options}),
    );
}

fn text(host: &Process, request_id: &str) -> String {
    let frames = host.frames_of(request_id);
    frames
        .iter()
        .filter(|frame| frame["type"] == "delta")
        .filter_map(|frame| frame["text"].as_str())
        .collect()
}

/// The events of a turn, by kind.
fn events(host: &Process, request_id: &str, kind: &str) -> Vec<Value> {
    host.frames_of(request_id).into_iter().filter(|frame| frame["kind"] == kind).collect()
}

#[track_caller]
fn failed(host: &Process, request_id: &str, reason: &str) -> String {
    let end = host.answer(request_id, "turn.error");
    assert_eq!(end["reason"], reason, "{end}");
    end["message"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn assert_says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

fn closed(mut host: Process) {
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0), "{}", host.stderr());
}

/// A port where nobody listens.
fn refused_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    format!("http://{}/v1", listener.unwrap_or_else(|error| panic!("no port: {error}")))
}

#[test]
fn a_stream_becomes_deltas_thoughts_and_usage_and_the_call_carries_the_conversation() {
    let scenario = Scenario::new();
    let answer = ModelAnswer::stream().reasoning("hm\n").text("Hel").text("lo").finish("stop");
    let usage =
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}});
    let server = ModelServer::start([answer.event(&usage).done(), ModelAnswer::texts(&["again"])]);
    let host = launch(&scenario).env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", KEY).start();
    let history =
        json!([{"role": "user", "content": "q", "timestamp": 1}, {"role": "assistant", "content": "a"}]);
    host.send(
        &json!({"type": "session.seed", "sid": "s", "request_id": "seed", "history": history, "model": "m2"}),
    );
    host.answer("seed", "session.seeded");
    start(&host, "t1", "hello");
    let end = host.answer("t1", "turn.end");
    assert_eq!((&end["final_response"], &end["message_count"]), (&json!("Hello"), &json!(4)));
    assert_eq!(end["session_info"]["usage"], json!({"input": 3, "output": 4, "total": 7, "calls": 1}));
    assert_eq!(host.types_of("t1"), ["turn.started", "event", "delta", "delta", "event", "turn.end"]);
    assert_eq!(events(&host, "t1", "thought")[0]["text"], "hm\n");
    assert_eq!(events(&host, "t1", "usage")[0]["total"], 7);

    start(&host, "t2", "more");
    assert_eq!(host.answer("t2", "turn.end")["final_response"], "again");
    let requests = server.requests();
    assert_eq!(requests[0].line, "POST /v1/chat/completions");
    assert_eq!(
        requests[0].body,
        json!({
            "model": "m2",
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "hello"},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(requests[0].header("content-length"), Some(requests[0].body_bytes().to_string().as_str()));
    assert_eq!(requests[0].header("transfer-encoding"), None);
    assert_eq!(requests[1].body["messages"].as_array().map(Vec::len), Some(5));
    assert_eq!(server.connections(), 1, "the second turn uses the connection of the first");
    closed(host);
}

#[test]
fn one_json_object_is_an_answer_too_if_the_server_gives_one_or_is_asked_for_one() {
    let scenario = Scenario::new();
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}});
    let server = ModelServer::start([ModelAnswer::json(200, &body)]);
    let host = host(&scenario, &server);
    start(&host, "t1", "hi");
    assert_eq!(host.answer("t1", "turn.end")["final_response"], "whole");
    assert_eq!(events(&host, "t1", "usage")[0]["output"], 2);
    start_with(&host, "t2", json!({"stream": false, "model": "m3"}));
    host.answer("t2", "turn.end");
    let body = &server.requests()[1].body;
    assert_eq!(
        (&body["stream"], &body["model"], body.get("stream_options")),
        (&json!(false), &json!("m3"), None)
    );
    closed(host);
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_the_same() {
    let scenario = Scenario::new();
    let body = ": hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"€\\ud83d\"}}]}\r\n\r\n\
                data: {\"choices\":[{\"delta\":{\"content\":\"\\ude00é\"}}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    let server = ModelServer::start([ModelAnswer::stream().send(body).byte_by_byte()]);
    let host = host(&scenario, &server);
    start(&host, "t", "hi");
    assert_eq!(host.answer("t", "turn.end")["final_response"], "€😀é");
    closed(host);
}

#[test]
fn a_busy_server_is_asked_again_as_late_as_it_says() {
    let scenario = Scenario::new();
    let busy = ModelAnswer::error(429, "slow down").header("retry-after", "1");
    let server = ModelServer::start([busy, ModelAnswer::texts(&["fine"])]);
    let host = host(&scenario, &server);
    start(&host, "t", "hi");
    assert_eq!(host.answer("t", "turn.end")["final_response"], "fine");
    let status = events(&host, "t", "status");
    assert_says(
        status[0]["text"].as_str().unwrap_or_default(),
        &["429", "slow down", "trying again in 1.", "attempt 2 of 5"],
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(1));
    assert_eq!(requests[0].body, requests[1].body);
    closed(host);
}

#[test]
fn a_server_that_keeps_failing_is_given_up_with_what_it_said() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::error(500, "out of\norder")]);
    let host = host(&scenario, &server);
    start_with(&host, "t", json!({"max_attempts": 3}));
    let message = failed(&host, "t", "exception");
    assert_says(
        &message,
        &["500", "out of order", "gave up after 3 attempts", &server.address().to_string()],
    );
    assert_eq!(server.requests().len(), 3);
    assert_eq!(events(&host, "t", "status").len(), 2);
    closed(host);
}

#[test]
fn what_no_second_call_would_change_is_not_tried_again() {
    let spent = json!({"error": {"message": "no money", "code": "insufficient_quota"}});
    let table = [
        (ModelAnswer::error(400, "bad"), &["400", "bad"][..]),
        (ModelAnswer::error(401, "who"), &["401", "set OPENAI_API_KEY"]),
        (ModelAnswer::error(404, "no such model"), &["404", "no such model", "/v1"]),
        (ModelAnswer::json(429, &spent), &["429", "no money"]),
        (ModelAnswer::error(429, "busy").header("retry-after", "3600"), &["429", "3600 s"]),
        (
            ModelAnswer::new(302, "").header("location", "http://elsewhere.example/v1?key=secret").length(0),
            &["302", "http://elsewhere.example/v1,", "base URL"],
        ),
        (
            ModelAnswer::new(200, "text/html").send("<html>Log in</html>"),
            &["text/html", "<html>Log in</html>"],
        ),
        (ModelAnswer::stream().send("data: {nonsense\n\n"), &["no chat completion", "{nonsense"]),
        (ModelAnswer::stream().send("nonsense\n\n"), &["empty", "nonsense"]),
        (ModelAnswer::json(200, &json!({"odd": 1})), &["no chat completion", "odd"]),
        (ModelAnswer::stream(), &["empty"]),
        (
            ModelAnswer::stream()
                .event(&json!({"choices": [{"delta": {"tool_calls": [{"function": {"name": "ls"}}]}}]}))
                .finish("tool_calls")
                .done(),
            &["ls", "no tools"],
        ),
        (ModelAnswer::new(200, "application/json").length(100 * 1024 * 1024).hold(), &["64 MiB"]),
    ];
    let scenario = Scenario::new();
    let count = table.len();
    let server = ModelServer::start(table.iter().map(|(answer, _)| answer.clone()));
    let host = host(&scenario, &server);
    for (number, (_, words)) in table.iter().enumerate() {
        let id = format!("t{number}");
        start(&host, &id, "hi");
        let message = failed(&host, &id, "exception");
        assert_says(&message, words);
        assert!(!message.contains("secret") && !message.contains('\n'), "{message}");
    }
    assert_eq!(server.requests().len(), count);
    closed(host);
}

#[test]
fn a_connection_that_fails_before_the_first_byte_is_tried_again() {
    let scenario = Scenario::new();
    let server = ModelServer::start([
        ModelAnswer::hang_up(),
        ModelAnswer::stream().cut(),
        ModelAnswer::texts(&["third"]),
    ]);
    let host = host(&scenario, &server);
    start(&host, "t", "hi");
    assert_eq!(host.answer("t", "turn.end")["final_response"], "third");
    assert_eq!(events(&host, "t", "status").len(), 2);

    start_with(&host, "refused", json!({"base_url": refused_url(), "max_attempts": 2}));
    let message = failed(&host, "refused", "exception");
    assert_says(&message, &["cannot connect", "refused", "is it running", "gave up after 2 attempts"]);
    closed(host);
}

#[test]
fn an_answer_that_is_cut_fails_the_turn_and_the_history_keeps_what_came() {
    let scenario = Scenario::new();
    let server = ModelServer::start([
        ModelAnswer::stream().text("half an ").text("ans").cut(),
        ModelAnswer::stream().text("ended too early"),
        ModelAnswer::stream().text("bad").event(&json!({"error": {"message": "overloaded"}})),
        ModelAnswer::stream().text("silent").hold(),
        ModelAnswer::texts(&["whole"]),
    ]);
    let host = host(&scenario, &server);
    start(&host, "t1", "one");
    assert_says(&failed(&host, "t1", "exception"), &["cut off"]);
    assert_eq!(text(&host, "t1"), "half an ans");
    start(&host, "t2", "two");
    assert_says(&failed(&host, "t2", "exception"), &["cut off"]);
    start(&host, "t3", "three");
    assert_says(&failed(&host, "t3", "exception"), &["overloaded"]);
    start_with(&host, "t4", json!({"idle_timeout_s": 0.2}));
    assert_says(&failed(&host, "t4", "exception"), &["cut off", "0.2 s", "idle_timeout_s"]);
    start(&host, "t5", "five");
    host.answer("t5", "turn.end");
    let requests = server.requests();
    assert_eq!(requests.len(), 5, "none was made again");
    let kept: Vec<&str> = requests[4].body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(
        kept,
        ["one", "half an ans", "two", "ended too early", "three", "bad", "hi", "silent", "five"]
    );
    closed(host);
}

#[test]
fn a_server_that_never_answers_is_given_up_at_the_first_byte_timeout() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::silence(), ModelAnswer::stream().hold()]);
    let host = host(&scenario, &server);
    for id in ["t1", "t2"] {
        start_with(&host, id, json!({"first_byte_timeout_s": 0.2}));
        assert_says(&failed(&host, id, "exception"), &["0.2 s", "first_byte_timeout_s"]);
    }
    assert_eq!(server.requests().len(), 2, "it may be at work already");
    closed(host);
}

#[track_caller]
fn interrupt(host: &Process, turn: &str) -> Value {
    host.send(&json!({"type": "interrupt", "sid": "s", "request_id": format!("i-{turn}"), "turn_id": turn}));
    assert_eq!(host.answer(&format!("i-{turn}"), "interrupt.ack")["outcome"], "applied");
    let end = host.ending(turn);
    assert_eq!((&end["type"], &end["interrupted"]), (&json!("turn.end"), &json!(true)));
    end
}

#[test]
fn an_interrupt_ends_a_turn_whatever_it_waits_for() {
    let scenario = Scenario::new();
    for (answer, partial) in [
        (ModelAnswer::silence(), ""),
        (ModelAnswer::stream().hold(), ""),
        (ModelAnswer::stream().text("some").hold(), "some"),
        (ModelAnswer::new(200, "application/json").send("{").hold(), ""),
    ] {
        let server = ModelServer::start([answer]);
        let host = host(&scenario, &server);
        start(&host, "t", "hi");
        server.wait_requests(1);
        if !partial.is_empty() {
            host.answer("t", "delta");
        }
        assert_eq!(interrupt(&host, "t")["final_response"], partial);
        server.wait_client_gone();
        closed(host);
    }
}

#[test]
fn an_interrupt_ends_a_turn_that_waits_to_try_again_or_to_connect() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::error(429, "busy").header("retry-after", "100")]);
    let host = host(&scenario, &server);
    start(&host, "t1", "hi");
    host.wait_for("the word of a retry", |frame| frame["kind"] == "status");
    interrupt(&host, "t1");

    // A listener whose queue is full answers no further connection at all.
    let full = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no listener: {error}"));
    rustix::net::listen(&full, 0).unwrap_or_else(|error| panic!("no short queue: {error}"));
    let address = full.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    let mut queued = Vec::new();
    while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(connection);
        assert!(queued.len() < 64, "the queue of the listener is never full");
    }
    let url = format!("http://{address}/v1");
    start_with(&host, "t2", json!({"base_url": url}));
    host.answer("t2", "turn.started");
    interrupt(&host, "t2");
    start_with(&host, "t3", json!({"base_url": url, "connect_timeout_s": 0.2, "max_attempts": 2}));
    assert_says(&failed(&host, "t3", "exception"), &["no connection", "in time", "after 2 attempts"]);
    closed(host);
}

#[test]
fn ctrl_c_ends_a_run_whose_model_is_silent_with_what_it_said() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::stream().text("so far\n").hold()]);
    let url = server.base_url();
    let arguments = ["run", "--agent", "openai", "--base-url", &url, "--model", "m", "hi"];
    let mut run = scenario.program("turnhost").args(arguments).start();
    wait_until(DEADLINE, "the beginning of the answer", || {
        run.strays().contains(&"so far".to_owned()).then_some(())
    });
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait_exit(), Ended::Code(130), "{}", run.stderr());
    server.wait_client_gone();
    assert_eq!(run.strays(), ["so far"]);
    scenario.wait_nothing_left();
}

#[test]
fn a_run_says_why_it_asks_a_model_and_what_the_agent_waits_for() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::error(503, "starting"), ModelAnswer::texts(&["Hello"])]);
    let run = |words: &[&str]| {
        let program = scenario.program("turnhost").args(["run"]).args(words);
        let mut run = program.env("OPENAI_BASE_URL", server.base_url()).start();
        run.close_stdin();
        (run.wait_exit(), run)
    };
    let (ended, process) = run(&["--model", "m", "hi"]);
    assert_eq!((ended, process.strays()), (Ended::Code(0), vec!["Hello".to_owned()]), "{}", process.stderr());
    assert_says(&process.stderr(), &["agent openai (--model was given)", "503", "starting", "trying again"]);
    let (ended, process) = run(&["hi"]);
    assert_eq!(ended, Ended::Code(1));
    assert_says(&process.stderr(), &["agent openai (OPENAI_BASE_URL", "no model is named", "--model"]);
    assert_eq!(server.requests().len(), 2);
    let (ended, process) = run(&["--agent", "openai", "--model", "m", "--base-url", "localhost:1", "hi"]);
    assert_eq!(ended, Ended::Code(1));
    assert_says(&process.stderr(), &["localhost:1", "give one as http://"]);
}

#[test]
fn the_hosts_default_agent_follows_server_key_and_script() {
    let scenario = Scenario::new();
    let server = ModelServer::start([ModelAnswer::texts(&["from the model"])]);
    let url = server.base_url();
    let said = |launch: Launch| {
        let host = launch.start();
        start(&host, "t", "hi");
        let end = host.ending("t");
        closed(host);
        end
    };
    let plain = || scenario.program("compute-host");
    let end = said(plain().args(["--base-url", &url, "--model", "m"]));
    assert_eq!(end["final_response"], "from the model");
    let end = said(plain().env("OPENAI_BASE_URL", url.as_str()).args(["--model", "m"]));
    assert_eq!(end["final_response"], "from the model");
    assert_eq!(end["session_info"]["agent"], "openai");
    let end = said(plain().env("OPENAI_API_KEY", KEY));
    assert_says(end["message"].as_str().unwrap_or_default(), &["no model is named"]);
    let scripted = |launch: Launch| assert_eq!(said(launch)["session_info"]["agent"], "scripted");
    scripted(plain());
    scripted(plain().env("OPENAI_BASE_URL", "").env("OPENAI_API_KEY", ""));
    scripted(plain().env("OPENAI_API_KEY", KEY).args(["--agent", "scripted"]));
    let script = scenario.home().join("script");
    assert!(std::fs::write(&script, "{\"delta\":\"played\"}\n").is_ok());
    let end = said(plain().env("OPENAI_API_KEY", KEY).arg_path("--script", &script));
    assert_eq!(end["final_response"], "played");
}

#[test]
fn a_turn_without_model_or_server_is_refused_and_changes_nothing() {
    let scenario = Scenario::new();
    let host = scenario.program("compute-host").args(["--agent", "openai"]).start();
    for (id, options, words) in [
        ("t1", json!({"model": "m"}), &["no server", "OPENAI_BASE_URL", "OPENAI_API_KEY"][..]),
        ("t2", json!({"base_url": "http://127.0.0.1:1/v1"}), &["no model", "--model"]),
        ("t3", json!({"base_url": "127.0.0.1:1", "model": "m"}), &["base URL", "http://"]),
        (
            "t4",
            json!({"base_url": "http://h/v1", "model": "m", "idle_timeout_s": 0}),
            &["agent.idle_timeout_s"],
        ),
        ("t5", json!({"base_url": 7}), &["base_url"]),
    ] {
        start_with(&host, id, options);
        assert_says(&failed(&host, id, "bad_request"), words);
        assert_eq!(host.answer(id, "turn.error")["history_version"], 0);
    }
    closed(host);
}

#[test]
fn fifty_megabytes_in_one_piece_are_an_answer() {
    let scenario = Scenario::new();
    let length = 50 * 1024 * 1024;
    let answer = json!({"choices": [{"message": {"content": "0123456789".repeat(length / 10)}}]});
    let server = ModelServer::start([ModelAnswer::json(200, &answer)]);
    let host = host(&scenario, &server);
    start(&host, "t", "hi");
    host.answer("t", "turn.end");
    let whole = text(&host, "t");
    assert_eq!(whole.len(), length / 10 * 10);
    assert!(whole.as_bytes().chunks(10).all(|part| part == b"0123456789"));
    closed(host);
}

#[test]
fn a_server_that_refuses_the_option_for_usage_is_asked_without_it() {
    let scenario = Scenario::new();
    let server = ModelServer::start([
        ModelAnswer::error(422, "stream_options: extra inputs are not permitted"),
        ModelAnswer::texts(&["fine"]),
    ]);
    let host = host(&scenario, &server);
    start_with(&host, "t", json!({"max_attempts": 1}));
    assert_eq!(host.answer("t", "turn.end")["final_response"], "fine");
    let requests = server.requests();
    assert!(requests[0].body.get("stream_options").is_some());
    assert_eq!((requests[1].body.get("stream_options"), &requests[1].body["stream"]), (None, &json!(true)));
    assert_eq!(events(&host, "t", "status"), [] as [Value; 0]);
    closed(host);
}

#[test]
fn the_key_is_shown_nowhere_although_the_server_echoes_it() {
    let scenario = Scenario::new();
    let echo = format!("Incorrect API key: {KEY} (Bearer {KEY})");
    let escaped = format!(r#"{{"detail":[{{"msg":"\u0073{}"}}]}}"#, &KEY[1..]);
    let server = ModelServer::start([
        ModelAnswer::error(401, &echo),
        ModelAnswer::error(503, &echo),
        ModelAnswer::new(403, "application/json").send(escaped),
        ModelAnswer::new(302, "").header("location", &format!("/{KEY}?key={KEY}")).length(0),
        ModelAnswer::new(200, "text/html").send(echo.as_str()),
        ModelAnswer::stream().send(format!("{echo}\n\n")),
        ModelAnswer::stream().text("a").event(&json!({"error": {"message": echo}})),
        ModelAnswer::stream().send(format!("data: {echo}\n\n")),
        ModelAnswer::error(401, &echo),
    ]);
    let traced = launch(&scenario).env("RUST_LOG", "trace").env("OPENAI_API_KEY", format!("{KEY}\n"));
    let host = traced.env("OPENAI_BASE_URL", server.base_url()).start();
    for number in 0..7 {
        let id = format!("t{number}");
        start(&host, &id, "hi");
        let message = failed(&host, &id, "exception");
        assert_says(&message, &["[the API key]"]);
    }
    // A key in the wrong place is one as well.
    start_with(&host, "url", json!({"base_url": KEY}));
    failed(&host, "url", "bad_request");
    let command = std::fs::read(format!("/proc/{}/cmdline", host.pid())).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&command).contains(KEY));
    host.wait_stderr("TRACE");
    let frames: String = host.frames().iter().map(Value::to_string).collect();
    assert!(!frames.contains(&KEY[..16]), "in a frame");
    let log = host.stderr();
    assert!(!log.contains(&KEY[..16]), "in the log");
    closed(host);

    let arguments = ["run", "--json", "--agent", "openai", "--model", "m", "hi"];
    let run =
        scenario.program("turnhost").args(arguments).env("OPENAI_API_KEY", KEY).env("TURNHOST_LOG", "trace");
    let mut run = run.env("OPENAI_BASE_URL", server.base_url()).start();
    run.close_stdin();
    assert_eq!(run.wait_exit(), Ended::Code(1));
    let shown: String = run.frames().iter().map(Value::to_string).collect();
    assert_says(&shown, &["[the API key]"]);
    assert!(!shown.contains(&KEY[..16]) && !run.stderr().contains(&KEY[..16]));
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.header("authorization") == Some(&format!("Bearer {KEY}")))
    );
}

#[test]
fn proxies_of_the_environment_are_asked_but_never_for_this_machine() {
    let scenario = Scenario::new();
    let proxy = ModelServer::start([ModelAnswer::texts(&["through the proxy"])]);
    let server = ModelServer::start([ModelAnswer::texts(&["directly"])]);
    let through = format!("http://{}", proxy.address());
    let host = launch(&scenario).env("HTTP_PROXY", through.as_str()).env("http_proxy", through.as_str());
    let host = host.env("ALL_PROXY", through.as_str()).start();
    let port = server.address().port();
    for (number, url) in [server.base_url(), format!("http://localhost:{port}/v1")].iter().enumerate() {
        let id = format!("t{number}");
        start_with(&host, &id, json!({"base_url": url}));
        assert_eq!(host.answer(&id, "turn.end")["final_response"], "directly");
    }
    assert_eq!(proxy.requests().len(), 0);
    start_with(&host, "far", json!({"base_url": "http://model.invalid/v1"}));
    assert_eq!(host.answer("far", "turn.end")["final_response"], "through the proxy");
    assert_eq!(proxy.requests()[0].line, "POST http://model.invalid/v1/chat/completions");
    closed(host);
}
