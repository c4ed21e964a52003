//! Policies: the format, and which checkpoints they believe.

use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::key::{Algorithm, Signer};
use vouch_log::merkle::Hash;
use vouch_log::note::NoteError;
use vouch_log::policy::{Policy, PolicyError, PolicyShortfall};
use vouch_testkit::SplitMix64;

const NOW: u64 = 1_800_000_000;
const ORIGIN: &str = "log.example/1";

fn log() -> Signer {
    Signer::from_seed(ORIGIN, Algorithm::Ed25519, &[1; 32]).unwrap()
}

/// Odd numbers sign with ML-DSA-44.
fn witness(number: u8) -> Signer {
    let algorithm = match number % 2 {
        0 => Algorithm::CosignatureEd25519,
        _ => Algorithm::CosignatureMlDsa44,
    };
    Signer::from_seed(&format!("w{number}.example"), algorithm, &[100 + number; 32]).unwrap()
}

fn head(origin: &str) -> Checkpoint {
    Checkpoint::new(origin, 7, Hash([7; 32]))
}

fn signed(signers: &[(&Signer, u64)]) -> SignedCheckpoint {
    let mut signed = SignedCheckpoint::unsigned(&head(ORIGIN)).unwrap();
    for (signer, time) in signers {
        signed.note_mut().sign(signer, *time).unwrap();
    }
    signed
}

fn key(signer: &Signer) -> String {
    signer.verifier().to_text()
}

/// The example of C2SP tlog-policy.
fn example() -> String {
    let mut text = format!("# ours\n\nlog {}\n", key(&log()));
    for number in 0..6 {
        text += &format!(
            "  witness\tW{number} {} https://w{number}.example/ \n",
            key(&witness(number))
        );
    }
    text + "group X-witnesses 2 W0 W1 W2\ngroup Y-witnesses any W3 W4 W5\n\
        group X-and-Y all X-witnesses Y-witnesses\nquorum X-and-Y"
}

#[test]
fn quorum_of_groups_is_evaluated_for_every_set() {
    let policy = Policy::parse(example().as_bytes()).unwrap();
    assert_eq!((policy.logs().len(), policy.witnesses().len()), (1, 6));
    assert_eq!(policy.witnesses()[5].url.as_deref(), Some("https://w5.example/"));
    let (log, witnesses): (_, Vec<_>) = (log(), (0..6).map(witness).collect());
    for set in 0u32..64 {
        let mut signers = vec![(&log, NOW)];
        for (number, witness) in (0..).zip(&witnesses).filter(|(n, _)| set >> n & 1 == 1) {
            signers.push((witness, NOW - 100 * number));
        }
        let result = policy.check(&signed(&signers), &[], NOW);
        let holds = (set & 7).count_ones() >= 2 && set >> 3 != 0;
        assert_eq!(result.is_ok(), holds, "{set:06b}: {result:?}");
        if let Ok(belief) = result {
            // The second of the first three, or the first of the others, whichever is earlier.
            let second = (0..3).filter(|n| set >> n & 1 == 1).nth(1).unwrap();
            let first = (3..6).find(|n| set >> n & 1 == 1).unwrap();
            assert_eq!(belief.quorum_time, Some(NOW - 100 * u64::from(second.max(first as u32))));
        }
    }
}

#[test]
fn forged_and_foreign_signatures_are_not_believed() {
    let (log, w0, w1) = (log(), witness(0), witness(1));
    let text = |quorum: &str| {
        let keys = format!("log {}\nwitness a {}\nwitness b {}\n", key(&log), key(&w0), key(&w1));
        Policy::parse(format!("{keys}group g 2 a b\nquorum {quorum}\n").as_bytes()).unwrap()
    };
    let policy = text("g");
    let check = |signed: &SignedCheckpoint| policy.check(signed, &[], NOW);
    let good = signed(&[(&log, NOW), (&w0, NOW), (&w1, NOW)]);
    check(&good).unwrap();
    let log_missing = check(&signed(&[(&w0, NOW), (&w1, NOW)]));
    assert_eq!(log_missing, Err(PolicyShortfall::Unsigned(ORIGIN.into())));
    assert_eq!(check(&signed(&[])), Err(PolicyShortfall::Note(NoteError::Unsigned)));
    // Another log's checkpoint with the same keys.
    let mut other = SignedCheckpoint::unsigned(&head("log.example/2")).unwrap();
    for signer in [&log, &w0, &w1] {
        other.note_mut().sign(signer, NOW).unwrap();
    }
    assert_eq!(check(&other), Err(PolicyShortfall::UnknownLog("log.example/2".into())));
    // Times: none, in the future, and just within the tolerance.
    for (time, is_credible) in [(0, false), (NOW + 301, false), (NOW + 300, true), (1, true)] {
        let signed = signed(&[(&log, NOW), (&w0, NOW), (&w1, time)]);
        let result = check(&signed);
        assert_eq!(result.is_ok(), is_credible, "{time}: {result:?}");
        assert!(is_credible || result.unwrap_err().to_string().contains("future: b"));
        text("none").check(&signed, &[], NOW).unwrap();
    }
    // A thief's witness of the same name, and a cosignature moved to another checkpoint.
    let thief = Signer::from_seed("w1.example", Algorithm::CosignatureMlDsa44, &[9; 32]).unwrap();
    let result = check(&signed(&[(&log, NOW), (&w0, NOW), (&thief, NOW)]));
    assert!(matches!(result, Err(PolicyShortfall::Quorum { found, .. }) if found == ["a"]));
    let mut moved = SignedCheckpoint::unsigned(&Checkpoint { size: 8, ..head(ORIGIN) }).unwrap();
    moved.note_mut().sign(&log, NOW).unwrap();
    for cosignature in &good.note().signatures()[1..] {
        moved.note_mut().add(cosignature.clone()).unwrap();
    }
    assert!(matches!(check(&moved), Err(PolicyShortfall::Note(NoteError::False { .. }))));
}

#[test]
fn keys_known_from_elsewhere_must_all_sign() {
    let (log, w0) = (log(), witness(0));
    let lattice = Signer::from_seed(ORIGIN, Algorithm::CosignatureMlDsa44, &[5; 32]).unwrap();
    let policy = Policy::parse(format!("witness a {}\nquorum a\n", key(&w0)).as_bytes()).unwrap();
    let both = [log.verifier().clone(), lattice.verifier().clone()];
    let complete = signed(&[(&log, NOW), (&lattice, NOW), (&w0, NOW)]);
    policy.check(&complete, &both, NOW).unwrap();
    let half = signed(&[(&log, NOW), (&w0, NOW)]);
    assert_eq!(policy.check(&half, &both, NOW), Err(PolicyShortfall::Unsigned(ORIGIN.into())));
    policy.check(&half, &both[..1], NOW).unwrap();
    // Without any log key, nobody vouches for the log.
    assert_eq!(policy.check(&half, &[], NOW), Err(PolicyShortfall::UnknownLog(ORIGIN.into())));
    let stranger = Signer::from_seed("other", Algorithm::Ed25519, &[6; 32]).unwrap();
    let keys = [stranger.verifier().clone()];
    let half = signed(&[(&log, NOW), (&w0, NOW), (&stranger, NOW)]);
    assert_eq!(policy.check(&half, &keys, NOW), Err(PolicyShortfall::Unsigned("other".into())));
}

#[test]
fn malformed_policies_are_refused_by_line() {
    let (w0, w1) = (key(&witness(0)), key(&witness(1)));
    let base = format!("witness a {w0}\nwitness b {w1}\n");
    let name = |name: &str| name.to_owned();
    let same_key = Signer::from_seed("else", Algorithm::CosignatureEd25519, &[100; 32]).unwrap();
    for (text, error) in [
        (String::new(), PolicyError::NoQuorum),
        (base.clone(), PolicyError::NoQuorum),
        (base.clone() + "quorum c", PolicyError::Unknown { line: 3, name: name("c") }),
        (base.clone() + "quorum a # ours", PolicyError::Form { line: 3, form: "quorum NAME|none" }),
        (base.clone() + "quorum a\nquorum b", PolicyError::SecondQuorum { line: 4 }),
        (base.clone() + "group g 3 a b\n", PolicyError::Threshold { line: 3 }),
        (base.clone() + "group g 0 a b\n", PolicyError::Threshold { line: 3 }),
        (base.clone() + "group g 01 a b\n", PolicyError::Threshold { line: 3 }),
        (
            base.clone() + "group g all a a\n",
            PolicyError::DuplicateMember { line: 3, name: name("a") },
        ),
        (
            base.clone() + "group g all a\ngroup h all a\n",
            PolicyError::DuplicateMember { line: 4, name: name("a") },
        ),
        (base.clone() + "group g all g\n", PolicyError::Unknown { line: 3, name: name("g") }),
        (base.clone() + "group g all none\n", PolicyError::Unknown { line: 3, name: name("none") }),
        (base.clone() + "group a all b\n", PolicyError::DuplicateName { line: 3, name: name("a") }),
        (
            base.clone() + "group none all b\n",
            PolicyError::DuplicateName { line: 3, name: name("none") },
        ),
        (base.clone() + &format!("witness c {w0}\n"), PolicyError::DuplicateKey { line: 3 }),
        (
            base.clone() + &format!("witness c {}\n", key(&same_key)),
            PolicyError::DuplicateKey { line: 3 },
        ),
        (
            base.clone() + &format!("witness c {}\n", key(&log())),
            PolicyError::NotWitness { line: 3 },
        ),
        (base.clone() + "rule a\n", PolicyError::Keyword { line: 3, word: name("rule") }),
        (base.clone() + "quorum a\r\n", PolicyError::Characters { line: 3 }),
        ("#".repeat(300_000), PolicyError::TooLong),
    ] {
        assert_eq!(
            Policy::parse(text.as_bytes()).err(),
            Some(error),
            "{:.200}",
            &text[base.len().min(text.len())..]
        );
    }
    // Names are octets; a sharp sign within a word is no comment.
    let text = [b"witness w#\xff ".as_slice(), w0.as_bytes(), b"\nquorum w#\xff"].concat();
    Policy::parse(&text).unwrap();
    let mut many = String::new();
    for number in 0..65u8 {
        let signer = Signer::from_seed("w", Algorithm::CosignatureEd25519, &[number; 32]).unwrap();
        many += &format!("witness w{number} {}\n", key(&signer));
    }
    assert_eq!(Policy::parse(many.as_bytes()), Err(PolicyError::TooMany { line: 65 }));
}

/// A note with any bit changed is never believed with more than it says.
#[test]
fn changed_checkpoints_are_refused() {
    let (log, w0) = (log(), witness(0));
    let text = format!("log {}\nwitness a {}\nquorum a\n", key(&log), key(&w0));
    let policy = Policy::parse(text.as_bytes()).unwrap();
    let good = signed(&[(&log, NOW), (&w0, NOW)]).to_text().into_bytes();
    let mut random = SplitMix64(4);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if random.roll(8) == 0 {
            bad.truncate(random.roll(bad.len() as u64) as usize);
        }
        let believed = SignedCheckpoint::parse(&bad)
            .ok()
            .filter(|signed| policy.check(signed, &[], NOW).is_ok());
        assert!(believed.is_none(), "bit {bit}");
    }
}
