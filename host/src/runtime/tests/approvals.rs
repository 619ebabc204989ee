use super::*;
use crate::turn::context::{ApprovalAnswer, Question, TurnContext};
use crate::{Answer, AsyncAgent, TurnFuture};

fn ask(timeout_ms: u64) -> Value {
    json!([{"delta": "before "}, {"ask": {"command": "rm", "choices": ["once", "deny"], "timeout_ms": timeout_ms}}])
}

fn respond(id: &Value, choice: &str) -> Value {
    json!({"type": "respond", "sid": "s", "request_id": "r", "approval_id": id, "choice": choice})
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_answered_once_and_resolved() {
    let mut rig = Rig::new().await;
    let mut script = ask(60_000);
    script.as_array_mut().unwrap().push(json!({"sleep_ms": 1000}));
    rig.play("s", "t", script).await;
    let asked = rig.until("event").await;
    assert_eq!((&asked["kind"], &asked["seq"]), (&json!("approval_request"), &json!(1)));
    assert_eq!((&asked["command"], &asked["choices"]), (&json!("rm"), &json!(["once", "deny"])));
    assert_eq!((&asked["timeout_ms"], &asked["allow_permanent"]), (&json!(60_000), &json!(false)));
    let id = &asked["approval_id"];
    rig.send(respond(&json!("approval-0"), "once")).await;
    assert_eq!(rig.until("respond.error").await["message"], "no open question: approval-0");
    rig.send(respond(id, "always")).await;
    assert_eq!(rig.until("respond.error").await["message"], "not a choice: always; choices: once, deny");
    rig.send(respond(id, "once")).await;
    let ack = rig.until("respond.ack").await;
    assert_eq!((&ack["resolved"], &ack["approval_id"], &ack["choice"]), (&json!(true), id, &json!("once")));
    let resolved = rig.until("event").await;
    assert_eq!((&resolved["kind"], &resolved["choice"]), (&json!("approval_resolved"), &json!("once")));
    assert_eq!((&resolved["approval_id"], &resolved["seq"]), (id, &json!(2)));
    rig.send(respond(id, "deny")).await;
    let frames = rig.through("turn.end").await;
    let late = of(&frames, "r")[0];
    assert_eq!((&late["resolved"], &late["choice"]), (&json!(false), &json!("once")));
    assert_eq!(frames.last().unwrap()["final_response"], "before [approval: once]");
}

#[tokio::test(start_paused = true)]
async fn the_peers_form_of_an_answer_is_read_as_well() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", ask(60_000)).await;
    let id = rig.until("event").await["approval_id"].clone();
    let answer = json!({"type": "respond", "sid": "s", "request_id": "r",
        "params": {"frame": {"approval_id": id, "choice": "once"}}});
    rig.send(answer).await;
    assert_eq!(rig.until("respond.ack").await["resolved"], true);
    for (frame, message) in [
        (json!({"type": "respond", "request_id": "r"}), "approval_id required"),
        (json!({"type": "respond", "request_id": "r", "approval_id": "a"}), "choice required"),
        (json!({"type": "respond", "request_id": "r", "params": 7}), "approval_id required"),
    ] {
        rig.send(frame).await;
        assert_eq!(rig.until("respond.error").await["message"], message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_is_denied_in_time() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", ask(5000)).await;
    let asked = Instant::now();
    rig.until("event").await;
    let resolved = rig.until("event").await;
    assert_eq!((&resolved["kind"], &resolved["choice"]), (&json!("approval_resolved"), &json!("deny")));
    assert_eq!(asked.elapsed().as_secs(), 5);
    assert_eq!(rig.until("turn.end").await["final_response"], "before [approval: denied]");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_denies_what_is_open_before_the_turn_ends() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", ask(60_000)).await;
    rig.until("event").await;
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    let frames = rig.through("turn.end").await;
    let of_turn: Vec<_> = of(&frames, "t").iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(of_turn, ["event", "turn.end"]);
    assert_eq!(frames.last().unwrap()["interrupted"], true);
}

#[tokio::test(start_paused = true)]
async fn a_question_reaches_front_ends_that_know_only_rpc() {
    let mut rig = Setup { rpc_events: true, ..Setup::default() }.start().await;
    rig.play("s", "t", ask(1000)).await;
    let asked = rig.until("event").await;
    let rpc = rig.until("rpc").await;
    assert_eq!(rpc["message"]["params"]["type"], "approval.request");
    assert_eq!(rpc["message"]["params"]["payload"]["approval_id"], asked["approval_id"]);
}

/// Asks, then says how it was answered: listens to no interrupt of its own.
struct Asks {
    command_bytes: usize,
}

impl AsyncAgent for Asks {
    fn run(&self, turn: TurnContext) -> TurnFuture<'_> {
        Box::pin(async move {
            let question = Question {
                command: "\u{1}".repeat(self.command_bytes),
                description: String::new(),
                choices: vec![],
                allow_permanent: false,
                timeout_ms: 3_600_000,
            };
            let text = match turn.ask_approval(question).await {
                ApprovalAnswer::Choice(choice) => choice,
                ApprovalAnswer::Denied => "denied".to_owned(),
            };
            Ok(Answer { text: Some(text), interrupted: false })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_denies_the_open_question_of_an_agent_that_waits_for_nothing_else() {
    let agents = Agents::new().with_async("asks", Asks { command_bytes: 1 });
    let mut rig = Setup { agents, ..Setup::default() }.start().await;
    rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
    let asked = rig.until("event").await;
    let told = Instant::now();
    rig.send(json!({"type": "interrupt", "sid": "s", "request_id": "i"})).await;
    let frames = rig.through("turn.end").await;
    assert_eq!(told.elapsed(), Duration::ZERO, "the agent goes on at once");
    let kinds: Vec<_> = of(&frames, "t").iter().map(|frame| (&frame["kind"], &frame["choice"])).collect();
    assert_eq!(kinds, [(&json!("approval_resolved"), &json!("deny")), (&json!(null), &json!(null))]);
    assert_eq!(frames.last().unwrap()["final_response"], "denied");
    rig.send(respond(&asked["approval_id"], "once")).await;
    let late = rig.until("respond.ack").await;
    assert_eq!((&late["resolved"], &late["choice"]), (&json!(false), &json!("deny")), "after its turn");
}

#[tokio::test(start_paused = true)]
async fn a_stop_denies_the_questions_of_its_turns_before_they_end() {
    let mut rig = Rig::new().await;
    rig.play("s", "t", json!([{"ask": {"command": "rm", "timeout_ms": 3_600_000}}])).await;
    let asked = rig.until("event").await;
    rig.send(json!({"type": "shutdown", "request_id": "bye"})).await;
    let frames = rig.rest().await;
    let of_turn = of(&frames, "t");
    assert_eq!(of_turn[0]["kind"], "approval_resolved");
    assert_eq!((&of_turn[0]["approval_id"], &of_turn[0]["choice"]), (&asked["approval_id"], &json!("deny")));
    assert_eq!(of_turn[1]["type"], "turn.end");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_could_see_whole_is_denied_and_not_asked() {
    for rpc_events in [false, true] {
        let agents = Agents::new().with_async("asks", Asks { command_bytes: 100_000 });
        let max_frame_bytes = turnhost_protocol::limits::MIN_FRAME_BYTES;
        let mut rig = Setup { agents, max_frame_bytes, rpc_events, ..Setup::default() }.start().await;
        rig.send(json!({"type": "turn.start", "sid": "s", "request_id": "t"})).await;
        let frames = rig.through("turn.end").await;
        let events: Vec<_> = frames.iter().filter(|frame| frame["type"] == "event").collect();
        assert_eq!((events.len(), &events[0]["kind"]), (1, &json!("status")), "{events:?}");
        assert!(events[0]["text"].as_str().unwrap().starts_with("a question was denied"), "{events:?}");
        assert_eq!(frames.last().unwrap()["final_response"], "denied");
    }
}
