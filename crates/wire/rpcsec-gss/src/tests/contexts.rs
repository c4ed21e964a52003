use std::sync::Arc;

use vouch_krb5_seal::Enctype;

use super::fixture::*;
use crate::*;

fn established(lifetime_s: u64) -> EstablishedContext {
    match (TestAcceptor { enctype: Enctype::Aes128CtsHmacSha1_96, rounds: 0 }).accept(None, b"") {
        Accept::Established { context, .. } => EstablishedContext { lifetime_s, ..context },
        _ => unreachable!("TestAcceptor accepts every token"),
    }
}

fn handle(number: u32) -> ContextHandle {
    let mut bytes = [0; HANDLE_LEN];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    ContextHandle(bytes)
}

fn table(contexts_max: usize) -> Contexts<u8> {
    Contexts::new(ContextLimits { contexts_max, ..ContextLimits::default() })
}

fn used(contexts: &mut Contexts<u8>, number: u32, now_ms: u64) -> bool {
    contexts.find(&handle(number).0, now_ms).is_some_and(|context| {
        context.touch(now_ms);
        true
    })
}

fn of(principal: &str) -> EstablishedContext {
    EstablishedContext { principal: principal.into(), ..established(3600) }
}

#[test]
fn full_table_evicts_least_recently_used() {
    let mut contexts = table(10_000);
    let template = established(3600);
    for number in 0..10_000 {
        contexts.insert(handle(number), template.clone(), u64::from(number));
    }
    assert_eq!((contexts.len(), contexts.evicted()), (10_000, 0));
    assert!(used(&mut contexts, 0, 20_000));
    let held = contexts.find(&handle(1).0, 1).unwrap();
    contexts.insert(handle(10_000), template.clone(), 20_001);
    assert_eq!((contexts.len(), contexts.evicted()), (10_000, 1));
    assert!(contexts.find(&handle(0).0, 20_002).is_some());
    assert!(contexts.find(&handle(1).0, 20_002).is_none());
    assert!(held.has_ended(20_002));
}

#[test]
fn principal_over_share_evicts_its_own_contexts() {
    let mut contexts: Contexts<u8> = Contexts::new(ContextLimits {
        contexts_max: 100,
        principal_share: 20,
        ..ContextLimits::default()
    });
    for number in 0..60 {
        contexts.insert(
            handle(number),
            of(&format!("user{}@EXAMPLE.ORG", number % 30)),
            u64::from(number),
        );
    }
    for number in 1000..2000 {
        contexts.insert(handle(number), of("mallory@EXAMPLE.ORG"), u64::from(number));
    }
    assert_eq!(contexts.len(), 100);
    assert!((0..60).all(|number| contexts.find(&handle(number).0, 2000).is_some()));
    assert!(
        contexts.find(&handle(1999).0, 2000).is_some()
            && contexts.find(&handle(1959).0, 2000).is_none()
    );
}

#[test]
fn largest_principal_makes_room_for_others() {
    let mut contexts: Contexts<u8> = Contexts::new(ContextLimits {
        contexts_max: 100,
        principal_share: 20,
        ..ContextLimits::default()
    });
    for number in 0..30 {
        contexts.insert(
            handle(number),
            of(&format!("user{number}@EXAMPLE.ORG")),
            u64::from(number),
        );
    }
    for number in 1000..1030 {
        contexts.insert(handle(number), of("carol@EXAMPLE.ORG"), u64::from(number));
    }
    for number in 2000..2040 {
        contexts.insert(handle(number), of("mallory@EXAMPLE.ORG"), u64::from(number));
    }
    assert_eq!(contexts.len(), 100);
    let mut now_ms = 5000;
    let mut left = |contexts: &mut Contexts<u8>| {
        now_ms += 1;
        for number in (1000..1030).chain(2000..2040) {
            used(contexts, number, now_ms);
        }
        let mut held = |range: std::ops::Range<u32>| {
            range.filter(|&number| contexts.find(&handle(number).0, now_ms).is_some()).count()
        };
        (held(0..30), held(1000..1030), held(2000..2040))
    };
    for (number, expected) in [(10, (30, 30, 30)), (20, (30, 20, 20)), (15, (15, 20, 20))] {
        for _ in 0..number {
            let others = contexts.len() as u32 + contexts.evicted() as u32;
            contexts.insert(
                handle(10_000 + others),
                of(&format!("other{others}@EXAMPLE.ORG")),
                4000,
            );
            left(&mut contexts);
        }
        assert_eq!(left(&mut contexts), expected);
    }
    assert_eq!(contexts.len(), 100);
}

#[test]
fn eviction_checks_a_bounded_number_of_contexts() {
    let mut contexts = table(1000);
    for number in 0..1000 {
        contexts.insert(handle(number), established(3600), u64::from(number));
    }
    assert!((0..1000).all(|number| used(&mut contexts, number, 20_000 - u64::from(number))));
    for at in 0..10 {
        contexts.insert(handle(5000 + at), established(3600), 30_000);
        let gone: Vec<u32> = (0..1000)
            .filter(|&number| contexts.find(&handle(number).0, 30_000).is_none())
            .collect();
        assert_eq!(gone, (0..=at).map(|turn| 64 * (turn + 1) - 1).collect::<Vec<_>>());
    }
}

#[test]
fn only_verified_calls_count_as_use() {
    for_each_protection(|enctype, service| {
        for proven in [false, true] {
            let mut fixture = Fixture::new(enctype);
            fixture.contexts =
                Contexts::new(ContextLimits { contexts_max: 2, ..ContextLimits::default() });
            let mut first = fixture.connect(service);
            fixture.now_ms += 1;
            let mut second = fixture.connect(service);
            let (again, _) = call(&mut first, 1, b"data");
            assert!(matches!(fixture.serve(again.clone()), Answer::Record(_)));
            fixture.now_ms += 1;
            assert!(matches!(fixture.serve(call(&mut second, 1, b"data").0), Answer::Record(_)));
            fixture.now_ms += 1;
            let (genuine, _) = call(&mut first, 2, b"data");
            match proven {
                true => assert!(matches!(fixture.serve(genuine), Answer::Record(_))),
                false => {
                    let mut noise = genuine;
                    let (_, mic, _) = layout(&noise);
                    noise[mic.end - 1] ^= 1;
                    assert_eq!(refusal(&fixture.serve(noise)), "denied 13");
                    assert_eq!(fixture.serve(again), Answer::Closed);
                }
            }
            fixture.now_ms += 1;
            fixture.connect(service);
            assert_eq!(
                fixture.contexts.find(first.handle(), fixture.now_ms).is_some(),
                proven,
                "{enctype} {service:?}"
            );
            assert_eq!(
                fixture.contexts.find(second.handle(), fixture.now_ms).is_some(),
                !proven,
                "{enctype} {service:?}"
            );
        }
    });
}

#[test]
fn removed_keys_are_wiped_when_dropped() {
    let mut contexts = table(2);
    let held: Vec<_> = (0..4)
        .map(|number| {
            Arc::downgrade(&contexts.insert(handle(number), established(60), u64::from(number)))
        })
        .collect();
    contexts.remove(handle(3));
    contexts.expire(60_002);
    assert!(contexts.is_empty() && held.iter().all(|context| context.strong_count() == 1));
    drop(contexts.take_removed());
    assert!(held.iter().all(|context| context.strong_count() == 0));
}

#[test]
fn removed_partial_state_is_dropped_by_caller() {
    let limits = ContextLimits { partial_max: 2, ..ContextLimits::default() };
    let mut contexts: Contexts<Arc<()>> = Contexts::new(limits);
    let kept: Vec<_> = (0..5).map(|_| Arc::new(())).collect();
    let held =
        |kept: &[Arc<()>]| kept.iter().map(|one| Arc::strong_count(one) - 1).collect::<Vec<_>>();
    (0..3).for_each(|at| contexts.store_partial(handle(at), kept[at as usize].clone(), 0));
    contexts.store_partial(handle(2), kept[3].clone(), 0);
    assert_eq!(held(&kept), [1, 1, 1, 1, 0]);
    assert!(contexts.take_partial(&handle(2).0, 30_000).is_none());
    contexts.store_partial(handle(4), kept[4].clone(), 30_000);
    contexts.expire(60_000);
    assert_eq!(held(&kept), [1; 5]);
    drop(contexts.take_removed());
    assert_eq!(held(&kept), [0; 5]);
}

#[test]
fn context_ends_with_its_ticket() {
    let mut contexts = table(10);
    let held = contexts.insert(handle(1), established(60), 5_000);
    assert!(contexts.find(&handle(1).0, 64_999).is_some());
    assert!(!held.has_ended(64_999) && held.has_ended(65_000));
    assert!(contexts.find(&handle(1).0, 65_000).is_none());
    assert!(contexts.is_empty());
    contexts.insert(handle(2), established(60), 5_000);
    contexts.insert(handle(3), established(600), 5_000);
    contexts.expire(65_000);
    assert_eq!(contexts.len(), 1);
}

#[test]
fn unknown_handles_find_nothing() {
    let mut contexts = table(10);
    contexts.insert(handle(1), established(60), 0);
    for name in [&[][..], &[0; 15], &[0; 17], &[1; 16]] {
        assert!(contexts.find(name, 0).is_none());
    }
}

#[test]
fn abandoned_exchanges_expire() {
    let mut contexts = table(10);
    contexts.store_partial(handle(1), 1, 0);
    contexts.store_partial(handle(2), 2, 10_000);
    assert!(contexts.take_partial(&handle(1).0, 30_000).is_none());
    assert_eq!(contexts.take_partial(&handle(2).0, 30_000).map(|(_, partial)| partial), Some(2));
    assert!(contexts.take_partial(&handle(2).0, 30_000).is_none());
    for number in 0..2000 {
        contexts.store_partial(handle(number), 0, 40_000);
    }
    assert!(contexts.take_partial(&handle(0).0, 40_000).is_none());
    assert!(contexts.take_partial(&handle(1999).0, 40_000).is_some());
}

proptest::proptest! {
    #[test]
    fn table_keeps_its_limit_and_most_recently_used(uses in proptest::collection::vec((0u32..40, proptest::bool::ANY), 1..300)) {
        let mut contexts = table(8);
        let template = established(1_000_000);
        let mut model: Vec<u32> = Vec::new();
        for (now, (number, remove)) in uses.into_iter().enumerate() {
            let known = used(&mut contexts, number, now as u64);
            proptest::prop_assert_eq!(known, model.contains(&number));
            model.retain(|&other| other != number);
            if remove {
                contexts.remove(handle(number));
                continue;
            }
            if !known {
                contexts.insert(handle(number), template.clone(), now as u64);
                if model.len() == 8 {
                    model.remove(0);
                }
            }
            model.push(number);
            proptest::prop_assert_eq!(contexts.len(), model.len());
        }
    }
}
