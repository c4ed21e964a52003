//! The table of contexts.

use std::sync::Arc;

use vouch_krb5_seal::Enctype;

use super::world::*;
use crate::*;

fn established(lifetime_s: u64) -> EstablishedContext {
    match (Believer { enctype: Enctype::Aes128CtsHmacSha1_96, rounds: 0 }).accept(None, b"") {
        Accept::Established { context, .. } => EstablishedContext { lifetime_s, ..context },
        _ => unreachable!("it believes everybody"),
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

#[test]
fn ten_thousand_contexts_are_held_and_what_was_used_longest_ago_makes_room() {
    let mut contexts = table(10_000);
    let template = established(3600);
    for number in 0..10_000 {
        contexts.insert(handle(number), template.clone(), u64::from(number));
    }
    assert_eq!((contexts.len(), contexts.evicted()), (10_000, 0));
    // The first is used again and stays; the second goes.
    assert!(contexts.find(&handle(0).0, 20_000).is_some());
    let held = contexts.find(&handle(1).0, 1).unwrap();
    contexts.insert(handle(10_000), template.clone(), 20_001);
    assert_eq!((contexts.len(), contexts.evicted()), (10_000, 1));
    assert!(contexts.find(&handle(0).0, 20_002).is_some());
    assert!(contexts.find(&handle(1).0, 20_002).is_none());
    // Whoever remembers it sees that it is gone.
    assert!(held.has_ended(20_002));
}

#[test]
fn who_makes_context_after_context_takes_away_his_own() {
    let of = |principal: &str| EstablishedContext { principal: principal.into(), ..established(3600) };
    let mut contexts: Contexts<u8> = Contexts::new(ContextLimits { contexts_max: 100, principal_share: 20, ..ContextLimits::default() });
    for number in 0..60 {
        contexts.insert(handle(number), of(&format!("user{}@EXAMPLE.ORG", number % 30)), u64::from(number));
    }
    for number in 1000..2000 {
        contexts.insert(handle(number), of("mallory@EXAMPLE.ORG"), u64::from(number));
    }
    // Everybody else's are older, and all there.
    assert_eq!(contexts.len(), 100);
    assert!((0..60).all(|number| contexts.find(&handle(number).0, 2000).is_some()));
    assert!(contexts.find(&handle(1999).0, 2000).is_some() && contexts.find(&handle(1959).0, 2000).is_none());
    // One who has less than his share makes room by what was used longest ago, whose ever it is.
    contexts.insert(handle(3000), of("user1@EXAMPLE.ORG"), 3000);
    assert!((0..60).all(|number| contexts.find(&handle(number).0, 3000).is_some()) && contexts.find(&handle(1960).0, 3000).is_none());
}

#[test]
fn keys_of_what_left_are_wiped_when_whoever_took_them_drops_them() {
    let mut contexts = table(2);
    let held: Vec<_> = (0..4).map(|number| Arc::downgrade(&contexts.insert(handle(number), established(60), u64::from(number)))).collect();
    contexts.remove(handle(3));
    contexts.expire(60_002);
    assert!(contexts.is_empty() && held.iter().all(|context| context.strong_count() == 1));
    drop(contexts.take_gone());
    assert!(held.iter().all(|context| context.strong_count() == 0));
}

#[test]
fn a_context_ends_with_its_ticket() {
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
fn handles_of_other_lengths_and_unknown_ones_find_nothing() {
    let mut contexts = table(10);
    contexts.insert(handle(1), established(60), 0);
    for name in [&[][..], &[0; 15], &[0; 17], &[1; 16]] {
        assert!(contexts.find(name, 0).is_none());
    }
}

#[test]
fn exchanges_that_nobody_goes_on_with_are_forgotten() {
    let mut contexts = table(10);
    contexts.keep_partial(handle(1), 1, 0);
    contexts.keep_partial(handle(2), 2, 10_000);
    assert!(contexts.take_partial(&handle(1).0, 30_000).is_none());
    assert_eq!(contexts.take_partial(&handle(2).0, 30_000).map(|(_, partial)| partial), Some(2));
    assert!(contexts.take_partial(&handle(2).0, 30_000).is_none());
    for number in 0..2000 {
        contexts.keep_partial(handle(number), 0, 40_000);
    }
    assert!(contexts.take_partial(&handle(0).0, 40_000).is_none());
    assert!(contexts.take_partial(&handle(1999).0, 40_000).is_some());
}

proptest::proptest! {
    #[test]
    fn the_table_keeps_within_its_bound_and_loses_the_least_used(uses in proptest::collection::vec((0u32..40, proptest::bool::ANY), 1..300)) {
        let mut contexts = table(8);
        let template = established(1_000_000);
        // Oldest use first.
        let mut model: Vec<u32> = Vec::new();
        for (now, (number, remove)) in uses.into_iter().enumerate() {
            let known = contexts.find(&handle(number).0, now as u64).is_some();
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
