use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn question(choices: &[&str]) -> Question {
    Question {
        command: "rm".to_owned(),
        description: String::new(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        allow_permanent: false,
        timeout_ms: 1000,
    }
}

fn ask(
    approvals: &mut Approvals,
    id: &str,
    turn: u64,
    question: &Question,
) -> (Option<Asked>, oneshot::Receiver<ApprovalAnswer>) {
    let (reply, answer) = oneshot::channel();
    (approvals.ask(Instant::now(), id.to_owned(), turn, "s".into(), question, reply), answer)
}

#[test]
fn a_question_without_choices_gets_the_usual_ones() {
    let mut approvals = Approvals::default();
    let (asked, _answer) = ask(&mut approvals, "a", 1, &question(&[]));
    assert_eq!(asked.unwrap().choices, ["once", "session", "deny"]);
    let permanent = Question { allow_permanent: true, ..question(&[]) };
    let (asked, _answer) = ask(&mut approvals, "b", 1, &permanent);
    assert_eq!(asked.unwrap().choices, ["once", "session", "always", "deny"]);
}

#[test]
fn the_first_answer_wins_and_a_later_one_is_told_so() {
    let mut approvals = Approvals::default();
    let (_, mut answer) = ask(&mut approvals, "a", 7, &question(&[]));
    let settled = Settled { approval_id: "a".to_owned(), turn: 7, choice: "once".to_owned() };
    assert_eq!(approvals.respond("a", Some(&"s".into()), "once"), Response::Resolved(settled));
    assert_eq!(answer.try_recv(), Ok(ApprovalAnswer::Choice("once".to_owned())));
    assert_eq!(approvals.respond("a", None, "deny"), Response::Late { choice: "once".to_owned() });
}

#[test]
fn an_answer_must_name_the_question_its_session_and_a_choice() {
    let mut approvals = Approvals::default();
    let (_, mut answer) = ask(&mut approvals, "a1", 1, &question(&["yes", "no"]));
    for id in ["a", "a11", "A1", ""] {
        assert_eq!(approvals.respond(id, None, "yes"), Response::Unknown, "{id:?}");
    }
    assert_eq!(approvals.respond("a1", Some(&"other".into()), "yes"), Response::Unknown);
    let choices = vec!["yes".to_owned(), "no".to_owned()];
    for choice in ["once", "YES", ""] {
        let expected = Response::NotAChoice { choices: choices.clone() };
        assert_eq!(approvals.respond("a1", None, choice), expected, "{choice:?}");
    }
    assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty), "it stays open");
    assert!(matches!(approvals.respond("a1", None, "no"), Response::Resolved(_)));
    assert_eq!(
        approvals.respond("a1", Some(&"other".into()), "no"),
        Response::Unknown,
        "not told to strangers"
    );
}

#[test]
fn time_denies_exactly_what_is_due() {
    let mut approvals = Approvals::default();
    let start = Instant::now();
    let (_, mut first) = ask(&mut approvals, "a", 1, &question(&["yes"]));
    let long = Question { timeout_ms: u64::MAX, ..question(&["yes"]) };
    let (asked, mut second) = ask(&mut approvals, "b", 1, &long);
    assert_eq!(asked.unwrap().timeout_ms, 7 * 24 * 3600 * 1000, "a time that no clock can hold is cut");
    assert!(approvals.next_deadline().unwrap() >= start + SECOND);
    assert_eq!(approvals.expire(start), []);
    let denied = Settled { approval_id: "a".to_owned(), turn: 1, choice: "deny".to_owned() };
    assert_eq!(approvals.expire(start + SECOND * 2), [denied]);
    assert_eq!(first.try_recv(), Ok(ApprovalAnswer::Denied));
    assert_eq!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    assert_eq!(approvals.respond("a", None, "yes"), Response::Late { choice: "deny".to_owned() });
}

#[test]
fn the_end_of_a_turn_denies_its_questions_and_no_others() {
    let mut approvals = Approvals::default();
    let (_, mut one) = ask(&mut approvals, "a", 1, &question(&[]));
    let (_, mut other) = ask(&mut approvals, "b", 2, &question(&[]));
    assert_eq!(approvals.deny_turn(1).len(), 1);
    assert_eq!(one.try_recv(), Ok(ApprovalAnswer::Denied));
    assert_eq!(other.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    assert_eq!(approvals.deny_turn(1), [], "once");
}

#[test]
fn one_turn_cannot_have_more_than_64_open_questions() {
    let mut approvals = Approvals::default();
    let open: Vec<_> =
        (0..64).map(|number| ask(&mut approvals, &format!("a{number}"), 1, &question(&[]))).collect();
    let (asked, mut answer) = ask(&mut approvals, "one more", 1, &question(&[]));
    assert_eq!(asked, None);
    assert_eq!(answer.try_recv(), Ok(ApprovalAnswer::Denied));
    assert!(ask(&mut approvals, "of another", 2, &question(&[])).0.is_some());
    drop(open);
}

#[test]
fn an_agent_that_stopped_waiting_does_not_keep_its_question_open() {
    let mut approvals = Approvals::default();
    drop(ask(&mut approvals, "a", 1, &question(&[])).1);
    assert!(matches!(approvals.respond("a", None, "once"), Response::Resolved(_)));
    assert_eq!(approvals.next_deadline(), None);
}
