use super::*;
use std::collections::HashSet;

const TURN: EntryId = 1;
const CONTROL: EntryId = 2;
const OTHER: EntryId = 3;

fn with_turn() -> Gate {
    let mut gate = Gate::new();
    gate.begin_turn(TURN).unwrap();
    gate
}

fn mutating() -> Gate {
    let mut gate = Gate::new();
    gate.begin_control(CONTROL, RouteClass::IdleGated).unwrap();
    gate
}

fn closed(mut gate: Gate) -> Gate {
    gate.close();
    gate
}

#[test]
fn what_may_begin_follows_the_table() {
    let (busy, closing) = (Err(Refusal::Busy), Err(Refusal::Closing));
    // The gate, and what comes of a turn, an idle-gated control and a run-concurrent one.
    let table = [
        ("idle", Gate::new(), Ok(()), Ok(()), Ok(())),
        ("turn", with_turn(), busy, busy, Ok(())),
        ("mutating", mutating(), busy, busy, Ok(())),
        ("closed idle", closed(Gate::new()), closing, closing, closing),
        ("closed turn", closed(with_turn()), closing, closing, closing),
        ("closed mutating", closed(mutating()), closing, closing, closing),
    ];
    for (name, gate, turn, idle_gated, concurrent) in table {
        assert_eq!(gate.clone().begin_turn(OTHER), turn, "{name}: turn");
        assert_eq!(
            gate.clone().begin_control(OTHER, RouteClass::IdleGated),
            idle_gated,
            "{name}: idle-gated"
        );
        assert_eq!(
            gate.clone().begin_control(OTHER, RouteClass::RunConcurrent),
            concurrent,
            "{name}: concurrent"
        );
        let turn_path = gate.clone().begin_control(OTHER, RouteClass::TurnPath);
        assert_eq!(turn_path, Err(Refusal::TurnPath), "{name}: turn-path");
    }
}

#[test]
fn a_refusal_changes_nothing() {
    for gate in [with_turn(), mutating(), closed(Gate::new())] {
        let mut tried = gate.clone();
        assert!(tried.begin_turn(OTHER).is_err());
        assert!(tried.begin_control(OTHER, RouteClass::IdleGated).is_err());
        assert!(tried.begin_control(OTHER, RouteClass::TurnPath).is_err());
        assert_eq!(tried, gate);
    }
}

#[test]
fn only_a_turn_can_be_interrupted() {
    assert_eq!(Gate::new().interrupt(), None);
    assert_eq!(mutating().interrupt(), None);
    assert_eq!(with_turn().interrupt(), Some(TURN));
    assert_eq!(closed(with_turn()).interrupt(), Some(TURN), "a stop interrupts as well");
    let mut gate = with_turn();
    gate.interrupt();
    assert_eq!(gate.interrupt(), Some(TURN), "twice is fine");
}

#[test]
fn an_old_id_does_not_free_a_newer_turn() {
    let mut gate = with_turn();
    assert!(gate.finish(TURN));
    gate.begin_turn(OTHER).unwrap();
    assert!(!gate.finish(TURN), "it left already");
    assert_eq!(gate.turn(), Some(OTHER));
}

#[test]
fn no_turn_begins_inside_an_idle_gated_control() {
    let mut gate = mutating();
    assert_eq!(gate.begin_turn(TURN), Err(Refusal::Busy));
    assert!(gate.finish(CONTROL));
    assert_eq!(gate.begin_turn(TURN), Ok(()));
}

/// The gate as a plain list of who is inside, to compare with.
#[derive(Default)]
struct Model {
    turn: Option<EntryId>,
    mutating: Option<EntryId>,
    concurrent: HashSet<EntryId>,
    closed: bool,
}

#[test]
fn a_random_walk_agrees_with_a_plain_list_of_who_is_inside() {
    for seed in 0..200 {
        walk(seed);
    }
}

fn walk(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut gate, mut model) = (Gate::new(), Model::default());
    let mut ids: Vec<EntryId> = vec![0];
    for step in 0..400 {
        let fresh = ids.len() as EntryId;
        ids.push(fresh);
        match random.below(if step > 300 { 12 } else { 11 }) {
            0..=2 => {
                let may = !model.closed && model.turn.is_none() && model.mutating.is_none();
                assert_eq!(gate.begin_turn(fresh).is_ok(), may, "seed {seed} step {step}");
                model.turn = if may { Some(fresh) } else { model.turn };
            }
            3 | 4 => {
                let may = !model.closed && model.turn.is_none() && model.mutating.is_none();
                assert_eq!(
                    gate.begin_control(fresh, RouteClass::IdleGated).is_ok(),
                    may,
                    "seed {seed} step {step}"
                );
                model.mutating = if may { Some(fresh) } else { model.mutating };
            }
            5 => {
                let let_in = gate.begin_control(fresh, RouteClass::RunConcurrent).is_ok();
                assert_eq!(let_in, !model.closed, "seed {seed} step {step}");
                if let_in {
                    model.concurrent.insert(fresh);
                }
            }
            6 => assert_eq!(gate.interrupt(), model.turn, "seed {seed} step {step}"),
            // Any id that ever was: mostly stale ones, and some twice.
            7..=10 => {
                let id = ids[random.below(ids.len() as u64) as usize];
                let inside =
                    model.turn == Some(id) || model.mutating == Some(id) || model.concurrent.contains(&id);
                assert_eq!(gate.finish(id), inside, "seed {seed} step {step}");
                model.turn = model.turn.filter(|turn| *turn != id);
                model.mutating = model.mutating.filter(|control| *control != id);
                model.concurrent.remove(&id);
                // The newest holder as well, or the walk would stay inside one turn for most of the time.
                if let Some(holder) = model.turn.or(model.mutating).filter(|_| random.below(2) == 0) {
                    assert!(gate.finish(holder), "seed {seed} step {step}");
                    (model.turn, model.mutating) = (None, None);
                }
            }
            _ => {
                gate.close();
                model.closed = true;
            }
        }
        assert!(model.turn.is_none() || model.mutating.is_none(), "never both");
        assert_eq!(gate.turn(), model.turn, "seed {seed} step {step}");
        assert_eq!(gate.is_idle(), model.turn.or(model.mutating).is_none(), "seed {seed} step {step}");
    }
}

/// xorshift: the same walk for the same seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
