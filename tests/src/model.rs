//! A model server that plays a script: chat completions as servers send them, faults included.

use crate::wait::{DEADLINE, wait_until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1024;

/// One answer of a [`ModelServer`]: a status, headers, and what happens in the body.
#[derive(Debug, Clone)]
pub struct ModelAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    /// The length that the head announces; none: chunks.
    length: Option<usize>,
    steps: Vec<Step>,
    before_head: Option<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    /// Says nothing until the client is gone.
    Hold,
    /// Breaks the connection off.
    Cut,
}

impl ModelAnswer {
    /// An answer with this status and Content-Type ("" for none), and no body yet.
    pub fn new(status: u16, content_type: &str) -> Self {
        let answer = Self { status, headers: Vec::new(), length: None, steps: Vec::new(), before_head: None };
        if content_type.is_empty() { answer } else { answer.header("content-type", content_type) }
    }

    /// The beginning of an event stream.
    pub fn stream() -> Self {
        Self::new(200, "text/event-stream")
    }

    /// A whole event stream: one chunk for each text, the end with its reason, 3 + 4 tokens, and `[DONE]`.
    pub fn texts(texts: &[&str]) -> Self {
        let answer = texts.iter().fold(Self::stream(), |answer, text| answer.text(text));
        let usage =
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}});
        answer.finish("stop").event(&usage).done()
    }

    /// A JSON body with its length.
    pub fn json(status: u16, body: &Value) -> Self {
        let body = body.to_string().into_bytes();
        Self { length: Some(body.len()), ..Self::new(status, "application/json") }.send(body)
    }

    /// An error as OpenAI words it.
    pub fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": "test", "code": null}}))
    }

    /// The request is read and never answered.
    pub fn silence() -> Self {
        Self { before_head: Some(Step::Hold), ..Self::stream() }
    }

    /// The request is read and the connection broken off.
    pub fn hang_up() -> Self {
        Self { before_head: Some(Step::Cut), ..Self::stream() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Announces this length, whatever the body will have.
    #[must_use]
    pub fn length(mut self, bytes: usize) -> Self {
        self.length = Some(bytes);
        self
    }

    /// Sends bytes of the body, in one write.
    #[must_use]
    pub fn send(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Send(bytes.into()));
        self
    }

    /// Sends each byte of the body so far in a write of its own.
    #[must_use]
    pub fn byte_by_byte(mut self) -> Self {
        let split = |step| match step {
            Step::Send(bytes) => bytes.into_iter().map(|byte| Step::Send(vec![byte])).collect(),
            other @ (Step::Hold | Step::Cut) => vec![other],
        };
        self.steps = self.steps.into_iter().flat_map(split).collect();
        self
    }

    /// Sends one event of a stream.
    #[must_use]
    pub fn event(self, data: &Value) -> Self {
        self.send(format!("data: {data}\n\n"))
    }

    /// Sends a chunk with text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.event(&json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}))
    }

    /// Sends a chunk with reasoning.
    #[must_use]
    pub fn reasoning(self, text: &str) -> Self {
        self.event(&json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]}))
    }

    /// Sends the chunk that ends the text.
    #[must_use]
    pub fn finish(self, reason: &str) -> Self {
        self.event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
    }

    /// Sends `[DONE]`.
    #[must_use]
    pub fn done(self) -> Self {
        self.send("data: [DONE]\n\n")
    }

    /// Says nothing more until the client is gone.
    #[must_use]
    pub fn hold(mut self) -> Self {
        self.steps.push(Step::Hold);
        self
    }

    /// Breaks the connection off in the middle of the body.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.steps.push(Step::Cut);
        self
    }
}

/// A request that a [`ModelServer`] got.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// When it had come whole.
    pub at: Instant,
    /// Method and target, as `POST /v1/chat/completions`.
    pub line: String,
    /// Its body, `null` if that is no JSON.
    pub body: Value,
    bytes: usize,
    headers: Vec<(String, String)>,
}

impl ModelRequest {
    /// How long its body was.
    pub fn body_bytes(&self) -> usize {
        self.bytes
    }

    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An HTTP server on the loopback interface that answers its requests in the order of a script. The last answer is given
/// again and again. Dropping it breaks every connection off.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    answers: Vec<ModelAnswer>,
    // A mutex and no message: tests look at it whenever they like.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<ModelRequest>,
    connections: Vec<TcpStream>,
    /// Clients that went while an answer was held.
    gone: usize,
    closing: bool,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If it cannot be started, or there is no answer.
    pub fn start(answers: impl IntoIterator<Item = ModelAnswer>) -> Self {
        let shared = Arc::new(Shared { answers: answers.into_iter().collect(), seen: Mutex::default() });
        assert!(!shared.answers.is_empty(), "a model server needs an answer");
        let listener =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listener.unwrap_or_else(|error| panic!("no model server: {error}"));
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { address, shared, accepting: Some(accepting) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared.seen().requests.clone()
    }

    /// Waits until it has got so many requests.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn wait_requests(&self, count: usize) -> Vec<ModelRequest> {
        wait_until(DEADLINE, &format!("{count} requests to the model server"), || {
            Some(self.requests()).filter(|requests| requests.len() >= count)
        })
    }

    /// Waits until a client has gone while its answer was held.
    ///
    /// # Panics
    /// At the deadline.
    #[track_caller]
    pub fn wait_client_gone(&self) {
        wait_until(DEADLINE, "the end of a client's connection", || {
            (self.shared.seen().gone > 0).then_some(())
        });
    }

    /// Connections that it has had.
    pub fn connections(&self) -> usize {
        self.shared.seen().connections.len()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        {
            let mut seen = self.shared.seen();
            seen.closing = true;
            for connection in &seen.connections {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        // Wakes the thread that accepts.
        let woken = TcpStream::connect(self.address);
        if woken.is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((connection, _)) = listener.accept() {
        let mut seen = shared.seen();
        if seen.closing {
            return;
        }
        let Ok(kept) = connection.try_clone() else { continue };
        seen.connections.push(kept);
        drop(seen);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve(connection, &shared));
    }
}

/// Serves one connection until it ends.
fn serve(mut connection: TcpStream, shared: &Shared) {
    let mut held = Vec::new();
    while let Some(request) = read_request(&mut connection, &mut held) {
        let answer = {
            let mut seen = shared.seen();
            let number = seen.requests.len();
            seen.requests.push(request);
            shared.answers.get(number).or_else(|| shared.answers.last()).cloned()
        };
        let Some(answer) = answer else { break };
        if play(&mut connection, &answer, shared).is_err() {
            break;
        }
    }
    let _ = connection.shutdown(Shutdown::Both);
}

/// Plays an answer; an error ends the connection.
fn play(connection: &mut TcpStream, answer: &ModelAnswer, shared: &Shared) -> std::io::Result<()> {
    if let Some(step) = &answer.before_head {
        take_step(connection, step, true, shared)?;
    }
    let mut head = format!("HTTP/1.1 {} Said\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    match answer.length {
        Some(length) => head += &format!("content-length: {length}\r\n\r\n"),
        None => head += "transfer-encoding: chunked\r\n\r\n",
    }
    connection.set_nodelay(true)?;
    connection.write_all(head.as_bytes())?;
    for step in &answer.steps {
        take_step(connection, step, answer.length.is_none(), shared)?;
    }
    if answer.length.is_none() {
        connection.write_all(b"0\r\n\r\n")?;
    }
    Ok(())
}

fn take_step(
    connection: &mut TcpStream,
    step: &Step,
    in_chunks: bool,
    shared: &Shared,
) -> std::io::Result<()> {
    match step {
        Step::Send(bytes) if in_chunks => {
            let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            connection.write_all(&chunk)
        }
        Step::Send(bytes) => connection.write_all(bytes),
        Step::Hold => {
            // A client that waits for an answer sends nothing: whatever ends this is its end.
            let _ = connection.read(&mut [0]);
            shared.seen().gone += 1;
            Err(std::io::ErrorKind::ConnectionAborted.into())
        }
        Step::Cut => Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
}

/// The next request of a connection; `None` at its end. `held` are bytes that were read too far.
fn read_request(connection: &mut TcpStream, held: &mut Vec<u8>) -> Option<ModelRequest> {
    let end = loop {
        if let Some(end) = held.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if held.len() > MAX_HEAD {
            return None;
        }
        read_more(connection, held)?;
    };
    let head = String::from_utf8_lossy(&held[..end]).into_owned();
    held.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let line = lines.next()?.rsplit_once(' ')?.0.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let length: usize = length.unwrap_or(0);
    while held.len() < length {
        read_more(connection, held)?;
    }
    let body = serde_json::from_slice(&held[..length]).unwrap_or(Value::Null);
    held.drain(..length);
    Some(ModelRequest { at: Instant::now(), line, body, bytes: length, headers })
}

fn read_more(connection: &mut TcpStream, held: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 * 1024];
    let count = connection.read(&mut buffer).ok().filter(|count| *count > 0)?;
    held.extend_from_slice(&buffer[..count]);
    Some(())
}
