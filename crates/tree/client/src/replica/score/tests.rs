use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn answered(scores: &mut Scores, id: usize, now: Moment, latency: Duration) {
    scores.started(ReplicaId(id));
    scores.ended(ReplicaId(id));
    scores.answered(ReplicaId(id), now, latency);
}

fn none_excluded(_: ReplicaId) -> bool {
    false
}

#[test]
fn asks_fastest_and_spreads_load() {
    let mut scores = Scores::new(3);
    for (id, ms) in [(0, 30), (1, 2), (2, 3)] {
        (0..20).for_each(|_| answered(&mut scores, id, MS, MS * ms));
    }
    assert_eq!(scores.choose(MS, none_excluded), Choice::Ask(ReplicaId(1)));
    let mut asked = [0; 3];
    for _ in 0..32 {
        let Choice::Ask(id) = scores.choose(MS, none_excluded) else { panic!("all are up") };
        scores.started(id);
        asked[id.0] += 1;
    }
    assert!(asked[1] > asked[2] && asked[2] > 5 && asked[0] == 0, "{asked:?}");
}

#[test]
fn slow_replica_is_not_down_but_unknown_one_is_tried_beside_it() {
    let mut scores = Scores::new(2);
    (0..20).for_each(|_| answered(&mut scores, 0, MS, Duration::from_secs(5)));
    assert_eq!(scores.choose(MS, none_excluded), Choice::Ask(ReplicaId(1)));
    assert_eq!(scores.choose(MS, |id| id == ReplicaId(1)), Choice::Ask(ReplicaId(0)));
    assert!(!scores.health(ReplicaId(0), MS).failing);
    assert_eq!(scores.hedge_delay(ReplicaId(0)), HEDGE_MAX);
}

#[test]
fn pauses_double_and_one_answer_resets_them() {
    let mut scores = Scores::new(1);
    let (mut now, mut last) = (MS, Duration::ZERO);
    for _ in 0..12 {
        scores.failed(ReplicaId(0), now);
        let Choice::Wait(at) = scores.choose(now, none_excluded) else {
            panic!("the replica is paused")
        };
        let pause = at - now;
        assert!(pause >= last && (BACK_OFF_MIN..=BACK_OFF_MAX).contains(&pause));
        (now, last) = (at, pause);
        assert_eq!(scores.choose(now, none_excluded), Choice::Ask(ReplicaId(0)));
    }
    assert_eq!(last, BACK_OFF_MAX);
    answered(&mut scores, 0, now, MS);
    (0..50).for_each(|_| scores.failed(ReplicaId(0), now));
    assert_eq!(
        scores.choose(now, none_excluded),
        Choice::Wait(now + BACK_OFF_MIN),
        "concurrent failures count once"
    );
}

#[test]
fn asks_lying_replica_last() {
    let mut scores = Scores::new(2);
    scores.lied(ReplicaId(0), MS);
    let later = MS + BACK_OFF_MAX;
    assert_eq!(scores.choose(later, none_excluded), Choice::Ask(ReplicaId(1)));
    (0..8).for_each(|n| scores.failed(ReplicaId(1), later + BACK_OFF_MAX * n));
    let now = later + BACK_OFF_MAX * 7 + MS;
    assert_eq!(
        scores.choose(now, none_excluded),
        Choice::Ask(ReplicaId(0)),
        "instead of waiting 30 s for the honest one"
    );
    assert_eq!(scores.choose(later, |id| id == ReplicaId(1)), Choice::Ask(ReplicaId(0)));
    answered(&mut scores, 0, later, MS);
    answered(&mut scores, 1, later, MS * 500);
    assert_eq!(
        scores.choose(later, none_excluded),
        Choice::Ask(ReplicaId(1)),
        "one good answer does not make it honest"
    );
    assert_eq!(
        scores.choose(MS + LIAR_EXCLUDED_FOR + MS, none_excluded),
        Choice::Ask(ReplicaId(0))
    );
}

#[test]
fn hedges_are_a_tenth_of_requests() {
    let mut scores = Scores::new(1);
    while scores.take_hedge() {}
    let mut hedges = 0;
    for _ in 0..1000 {
        scores.started(ReplicaId(0));
        hedges += u32::from(scores.take_hedge());
    }
    assert_eq!(hedges, 100);
}

#[test]
fn overtaken_replica_is_tried_again_later() {
    let mut scores = Scores::new(2);
    answered(&mut scores, 0, MS, MS);
    answered(&mut scores, 1, MS, MS * 3);
    assert_eq!(scores.choose(MS, none_excluded), Choice::Ask(ReplicaId(0)));
    (0..10).for_each(|_| scores.overtaken(ReplicaId(0), MS * 50));
    assert_eq!(scores.choose(MS, none_excluded), Choice::Ask(ReplicaId(1)));
    let later = Duration::from_secs(600);
    answered(&mut scores, 1, later, MS * 3);
    assert_eq!(scores.choose(later, none_excluded), Choice::Ask(ReplicaId(0)));
}

#[derive(Debug, Clone)]
enum Event {
    Answered(usize, u64),
    Failed(usize),
    Lied(usize),
    Outrun(usize, u64),
    Started(usize),
    Ended(usize),
    Later(u64),
}

fn any_event(count: usize) -> impl Strategy<Value = Event> {
    let id = 0..count;
    prop_oneof![
        (id.clone(), 0..5_000_000u64).prop_map(|(id, us)| Event::Answered(id, us)),
        id.clone().prop_map(Event::Failed),
        id.clone().prop_map(Event::Lied),
        (id.clone(), 0..5_000_000u64).prop_map(|(id, us)| Event::Outrun(id, us)),
        id.clone().prop_map(Event::Started),
        id.prop_map(Event::Ended),
        (0..40_000u64).prop_map(Event::Later),
    ]
}

#[derive(Debug, Clone, Copy, Default)]
struct Modelled {
    failures: u32,
    paused_until: Moment,
    excluded_until: Moment,
}

proptest! {
    #[test]
    fn choices_follow_the_model(events in proptest::collection::vec(any_event(4), 0..200), excluded in 0..16u32) {
        let mut scores = Scores::new(4);
        let mut model = [Modelled::default(); 4];
        let mut now = MS;
        for event in events {
            match event {
                Event::Answered(id, us) => {
                    scores.answered(ReplicaId(id), now, Duration::from_micros(us));
                    (model[id].failures, model[id].paused_until) = (0, Moment::ZERO);
                }
                Event::Failed(id) | Event::Lied(id) => {
                    let lie = matches!(event, Event::Lied(_));
                    if lie { scores.lied(ReplicaId(id), now) } else { scores.failed(ReplicaId(id), now) }
                    if model[id].paused_until <= now {
                        let pause = BACK_OFF_MIN * 2u32.pow(model[id].failures.min(12));
                        model[id].failures += 1;
                        model[id].paused_until = now + pause.min(BACK_OFF_MAX);
                    }
                    if lie {
                        model[id].excluded_until = now + LIAR_EXCLUDED_FOR;
                    }
                }
                Event::Outrun(id, us) => scores.overtaken(ReplicaId(id), Duration::from_micros(us)),
                Event::Started(id) => scores.started(ReplicaId(id)),
                Event::Ended(id) => scores.ended(ReplicaId(id)),
                Event::Later(ms) => now += MS * ms as u32,
            }
            let left: Vec<usize> = (0..4).filter(|id| excluded & (1 << id) == 0).collect();
            let honest = |id: &&usize| model[**id].excluded_until <= now;
            let ready = |id: &&usize| model[**id].paused_until <= now;
            match scores.choose(now, |id| excluded & (1 << id.0) != 0) {
                Choice::Nobody => prop_assert!(left.is_empty()),
                Choice::Wait(at) => {
                    prop_assert!(at > now);
                    prop_assert!(!left.iter().any(|id| honest(&id) && ready(&id)), "an honest replica is ready");
                    prop_assert!(left.iter().any(|&id| model[id].paused_until == at));
                }
                Choice::Ask(ReplicaId(id)) => {
                    prop_assert!(left.contains(&id) && ready(&&id));
                    prop_assert!(honest(&&id) || !left.iter().any(|id| honest(&id) && ready(&id)), "an honest replica was ready");
                }
            }
            for id in 0..4 {
                let delay = scores.hedge_delay(ReplicaId(id));
                prop_assert!((HEDGE_MIN..=HEDGE_MAX).contains(&delay));
            }
        }
    }
}
