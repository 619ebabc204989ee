//! The `openai` agent against a model server that others wrote: the Python package `llmock` 0.2.2, which fails on demand
//! and says what it thinks of the client. `scripts/setup` installs it; without it the test is skipped, unless
//! `TURNHOST_REQUIRE_PEER` is set.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use turnhost_testkit::{DEADLINE, Ended, Process, Scenario, installed_python, wait_until};

/// The Python that has it, or `None` if it is not installed and not required.
fn python() -> Option<PathBuf> {
    installed_python("the model server", "TURNHOST_MODEL_PYTHON", "model-llmock-0.2.2")
}

/// Its address, once it listens.
fn address(server: &Process) -> String {
    // A Python that imports much may need long on a busy machine.
    wait_until(DEADLINE * 4, "the model server to listen", || {
        let log = server.stderr();
        let rest = log.split_once("Uvicorn running on http://")?.1;
        Some(rest.split_once(|char: char| char.is_whitespace())?.0.to_owned())
    })
}

/// Asks the server something beside the agent: `POST` with a body, else `GET`.
fn ask(address: &str, path: &str, body: Option<&Value>) -> Value {
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    let asked = TcpStream::connect(address).and_then(|mut connection| {
        connection.set_read_timeout(Some(DEADLINE))?;
        connection.write_all(request.as_bytes())?;
        connection.read_to_string(&mut answer)
    });
    asked.unwrap_or_else(|error| panic!("the model server does not answer {path}: {error}"));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error} in {answer:?}"))
}

#[test]
fn a_model_server_that_others_wrote_is_understood_and_finds_no_fault_with_us() {
    let Some(python) = python() else { return };
    let scenario = Scenario::new();
    let arguments = ["-u", "-m", "llmock.cli", "serve", "--port", "0", "--response-style", "echo"];
    let mut server = scenario.launch(&python).args(arguments).start();
    let address = address(&server);
    let arguments = ["--agent", "openai", "--model", "gpt-4o"];
    let host = scenario.program("compute-host").args(arguments).env("OPENAI_API_KEY", "any").start();
    // Each prompt is another, because the server takes calls of the same body for attempts of one.
    let turn = |id: &str, mut options: Value| {
        options["name"] = json!("openai");
        options["base_url"] = json!(format!("http://{address}/v1"));
        host.send(&json!({"type": "turn.start", "sid": id, "request_id": id, "text": format!("prompt {id}"), "agent": options}));
        let end = host.ending(id);
        let frames = host.frames_of(id);
        let text: String = frames
            .iter()
            .filter_map(|frame| frame["text"].as_str().filter(|_| frame["type"] == "delta"))
            .collect();
        let counted = frames.iter().find(|frame| frame["kind"] == "usage").cloned();
        (end, text, counted)
    };
    let play = |behaviors: Value| {
        ask(&address, "/_llmock/scenario", Some(&json!({"behaviors": behaviors})));
    };

    let (end, streamed, counted) = turn("streamed", json!({}));
    assert_eq!((&end["type"], &end["final_response"]), (&json!("turn.end"), &json!(streamed)), "{end}");
    assert!(streamed.contains("prompt streamed"), "{streamed}");
    let counted = counted.unwrap_or_default();
    assert!(counted["input"].as_u64() > Some(0) && counted["output"].as_u64() > Some(0), "{counted}");

    let (end, whole, counted) = turn("plain", json!({"stream": false}));
    assert_eq!(end["type"], "turn.end", "{end}");
    assert!(whole.contains("prompt plain"), "{whole}");
    assert!(counted.unwrap_or_default()["total"].as_u64() > Some(0));

    play(json!([{"type": "reply", "text": "Grüße, 世界 👋🏽!"}]));
    let (_, text, _) = turn("unicode", json!({}));
    assert_eq!(text, "Grüße, 世界 👋🏽!");

    play(json!([{"type": "fail", "status": 429, "retry_after": 1, "times": 2}]));
    let (end, text, _) = turn("busy", json!({}));
    assert_eq!(end["type"], "turn.end", "{end}");
    assert!(text.contains("prompt busy"), "{text}");

    let fails = |id: &str, behavior: Value, words: &[&str]| {
        play(json!([behavior]));
        let (end, ..) = turn(id, json!({"max_attempts": 2}));
        assert_eq!(
            (&end["type"], &end["reason"]),
            (&json!("turn.error"), &json!("exception")),
            "{id}: {end}"
        );
        for word in words {
            assert!(end["message"].as_str().is_some_and(|message| message.contains(word)), "{id}: {end}");
        }
    };
    for (id, behavior, words) in [
        ("unknown", json!({"type": "fail", "status": 404}), &["404"][..]),
        (
            "down",
            json!({"type": "fail", "status": 503, "retry_after": 0, "times": 2}),
            &["503", "2 attempts"],
        ),
    ] {
        fails(id, behavior, words);
    }

    // Its judge wants the calls of a cut stream to be made again, which would run a turn twice: so it is asked now.
    let verdict = ask(&address, "/_llmock/verdict", None);
    assert_eq!((&verdict["passed"], &verdict["calls"]), (&json!(true), &json!(6)), "{verdict:#}");
    let warned: Vec<&Value> =
        verdict["findings"].as_array().into_iter().flatten().map(|one| &one["code"]).collect();
    assert_eq!(warned, [] as [&str; 0], "{verdict:#}");

    for (id, behavior, words) in [
        ("truncated", json!({"type": "stream_fault", "kind": "truncate", "after_chunks": 2}), &["cut off"]),
        (
            "disconnected",
            json!({"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}),
            &["cut off"],
        ),
        (
            "malformed",
            json!({"type": "stream_fault", "kind": "malformed", "after_chunks": 2}),
            &["no chat completion"],
        ),
    ] {
        fails(id, behavior, words);
    }

    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.wait_exit();
    let mut host = host;
    host.close_stdin();
    assert_eq!(host.wait_exit(), Ended::Code(0), "{}", host.stderr());
}
