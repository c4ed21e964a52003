//! Cosignatures of witnesses, honest and otherwise.

mod server;
#[cfg(feature = "sigsum-tests")]
mod sigsum;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use server::{Answer, HonestWitness, WitnessServer, refused, signer};
use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::key::{Algorithm, Signer, VerifierKey};
use vouch_log::merkle::Hash;
use vouch_log::policy::Policy;
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::witness::{AddCheckpoint, REPLY_LEN_MAX, SIZE_CONTENT_TYPE};
use vouch_tree_client::{CosignRequest, Cosigning, Objection, ShownHeadError, WitnessTarget};

const NOW: u64 = 1_800_000_000;

const ORIGIN: &str = "log.example";

#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl TileSource for &Files {
    fn read(&self, path: &str, _: usize) -> std::io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

fn log_key() -> Signer {
    Signer::from_seed(ORIGIN, Algorithm::Ed25519, &[99; 32]).unwrap()
}

struct Log {
    files: Files,
    checkpoint: SignedCheckpoint,
    key: VerifierKey,
}

impl Log {
    fn new(size: u64) -> Self {
        Self::signed_by(&log_key(), size)
    }

    fn signed_by(signer: &Signer, size: u64) -> Self {
        let mut tree = Appender::new();
        for number in 0..size {
            tree.push(&number.to_be_bytes()).unwrap();
        }
        let head = Checkpoint::new(signer.verifier().name(), tree.size(), tree.root());
        let mut files = Files::default();
        for file in tree.finish() {
            files.0.insert(file.id.path(), file.bytes);
        }
        let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
        checkpoint.note_mut().sign(signer, NOW).unwrap();
        Self { files, checkpoint, key: signer.verifier().clone() }
    }

    fn ask(&self, policy: &str, wait_ms: u64) -> Cosigning {
        let head = self.checkpoint.checkpoint();
        self.with_request(policy, wait_ms, |request| {
            request.send(|old| {
                LogReader::open(&self.files, head.size, head.root)?.consistency_proof(old)
            })
        })
    }

    fn confirm(&self, policy: &str) -> Cosigning {
        self.with_request(policy, 10_000, |request| request.confirm())
    }

    fn with_request(
        &self,
        policy: &str,
        wait_ms: u64,
        send: impl FnOnce(&CosignRequest<'_>) -> Cosigning,
    ) -> Cosigning {
        let policies = [Policy::parse(policy.as_bytes()).unwrap()];
        send(&CosignRequest {
            targets: &WitnessTarget::of_policies(&policies),
            policies: &policies,
            log_keys: std::slice::from_ref(&self.key),
            checkpoint: &self.checkpoint,
            checkpoint_len_max: 32 << 10,
            wait: Duration::from_millis(wait_ms),
            now: || NOW,
        })
    }
}

fn honest(seed: u8, seen: u64) -> HonestWitness {
    let head = Log::new(seen).checkpoint.checkpoint().clone();
    let witness = HonestWitness::new(seed, log_key().verifier().clone(), || NOW);
    HonestWitness { seen: (seen, if seen == 0 { Hash::EMPTY_TREE } else { head.root }), ..witness }
}

fn policy(k: usize, witnesses: &[(u8, &str)]) -> String {
    let line = |(seed, url): &(u8, &str)| {
        format!("witness w{seed} {} {url}\n", signer(*seed).verifier().to_text())
    };
    let names: String = witnesses.iter().map(|(seed, _)| format!(" w{seed}")).collect();
    let lines: String = witnesses.iter().map(line).collect();
    format!("{lines}group g {k}{names}\nquorum g\n")
}

/// The error of the only witness.
fn failure(answer: impl FnMut(&[u8]) -> Answer + Send + 'static) -> String {
    let server = WitnessServer::start(answer);
    let found = Log::new(5).ask(&policy(1, &[(1, &server.url)]), 1500);
    assert!(found.shortfall.is_some_and(|why| why.contains("no witness do not suffice")));
    assert_eq!(found.checkpoint, Log::new(5).checkpoint);
    found.failures[0].why.clone()
}

#[test]
fn witness_confirms_its_newest_head_and_contradicts_an_older_one() {
    let server = WitnessServer::honest(honest(1, 5), Duration::ZERO);
    let policy = policy(1, &[(1, &server.url)]);
    // Asked first: a witness that is behind learns nothing from it.
    let later = Log::new(7).confirm(&policy);
    assert!(later.shortfall.is_some());
    assert_eq!(later.failures[0].why, "it has cosigned 5 of the 7 entries so far");
    assert_eq!(later.failures[0].objection, None);
    let same = Log::new(5).confirm(&policy);
    assert_eq!((same.shortfall, same.failures), (None, vec![]));
    assert_eq!(same.checkpoint.note().signatures().len(), 2);
    let earlier = Log::new(4).confirm(&policy);
    assert!(earlier.shortfall.is_some());
    assert_eq!(earlier.failures[0].objection, Some(Objection::LongerLog(5)));
    assert!(earlier.failures[0].why.contains("it has cosigned 5 entries, and this log has 4"));
}

/// Of an earlier request: only what a witness says now counts.
#[test]
fn earlier_cosignature_confirms_nothing() {
    let mut log = Log::new(5);
    log.checkpoint.note_mut().sign(&signer(1), NOW).unwrap();
    let server = WitnessServer::start(|_| refused(422));
    let found = log.confirm(&policy(1, &[(1, &server.url)]));
    assert!(found.shortfall.is_some());
    assert_eq!(found.failures[0].objection, Some(Objection::OtherHistory));
}

/// C2SP tlog-witness, Monitor Retrieval Mechanism.
#[test]
fn shown_head_has_the_signatures_of_log_and_witness() {
    let log = Log::new(5);
    let signed_by = |signers: &[&Signer]| {
        let mut head = SignedCheckpoint::unsigned(log.checkpoint.checkpoint()).unwrap();
        signers.iter().for_each(|signer| head.note_mut().sign(signer, NOW).unwrap());
        head.to_text()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = |url: &str, origin: &str| {
        let policies = [Policy::parse(policy(1, &[(1, url)]).as_bytes()).unwrap()];
        let target = WitnessTarget::of_policies(&policies).remove(0);
        let keys = std::slice::from_ref(&log.key);
        runtime.block_on(target.shown_head(origin, keys, Duration::from_secs(10)))
    };
    let shown = |text: String| {
        let server = WitnessServer::start(move |_| (200, "text/plain", text.clone()));
        ask(&server.url, ORIGIN).map(|head| head.is_some())
    };
    let (key, one, other) = (log_key(), signer(1), signer(2));
    assert_eq!(shown(signed_by(&[&key, &one])), Ok(true));
    assert_eq!(shown(signed_by(&[&key, &other])), Err(ShownHeadError::NotCosigned));
    assert_eq!(shown(signed_by(&[&one])), Err(ShownHeadError::Unsigned));
    assert!(shown("<html>".to_owned()).is_err());
    let server = WitnessServer::honest(honest(1, 0).open(), Duration::ZERO);
    assert_eq!(ask(&server.url, ORIGIN), Ok(None));
    log.ask(&policy(1, &[(1, &server.url)]), 10_000);
    let found = ask(&server.url, ORIGIN).unwrap().unwrap();
    assert_eq!(found.checkpoint(), log.checkpoint.checkpoint());
    let text = signed_by(&[&key, &one]);
    let server = WitnessServer::start(move |_| (200, "text/plain", text.clone()));
    let other = ShownHeadError::OtherOrigin(ORIGIN.to_owned());
    assert_eq!(ask(&server.url, "other.example"), Err(other));
}

#[test]
fn witnesses_at_any_earlier_size_cosign() {
    for seen in [0, 1, 299, 300] {
        let server = WitnessServer::honest(honest(1, seen), Duration::ZERO);
        let log = Log::new(300);
        let found = log.ask(&policy(1, &[(1, &server.url)]), 10_000);
        assert_eq!((found.shortfall, found.failures), (None, vec![]), "from {seen}");
        assert_eq!(found.checkpoint.note().signatures().len(), 2);
        // Again: a newer time, and one signature of each key.
        let again = Log { checkpoint: found.checkpoint.clone(), ..log };
        assert_eq!(again.ask(&policy(1, &[(1, &server.url)]), 10_000).checkpoint, found.checkpoint);
    }
}

#[test]
fn dead_and_slow_witnesses_do_not_hold_up_a_quorum() {
    let dead = WitnessServer::silent();
    let servers: Vec<_> =
        (1..=2).map(|seed| WitnessServer::honest(honest(seed, 0), Duration::ZERO)).collect();
    let policy = policy(
        2,
        &[(1, &servers[0].url), (2, &servers[1].url), (3, &dead.url), (4, "http://127.0.0.1:1")],
    );
    let begun = Instant::now();
    let found = Log::new(9).ask(&policy, 60_000);
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not wait for the dead one");
    assert_eq!(found.shortfall, None);
    // Again, for newer times: an earlier quorum makes it wait neither longer nor shorter.
    let again = Log { checkpoint: found.checkpoint, ..Log::new(9) };
    let again = again.ask(&policy, 60_000);
    assert!(begun.elapsed() < Duration::from_secs(30), "it waits for the dead one");
    assert_eq!(again.failures.len(), 2);
    let failed: Vec<_> = found.failures.iter().map(|failure| &failure.name[..]).collect();
    assert_eq!(failed, ["w3", "w4"]);
    assert!(found.failures[0].why.contains("no answer within "), "{:?}", found.failures);
    assert!(found.failures[1].why.contains("refused"), "{:?}", found.failures);
}

#[test]
fn busy_witness_is_asked_again() {
    let mut witness = honest(1, 0);
    let mut statuses = vec![503, 500, 429];
    let server = WitnessServer::start(move |body| match statuses.pop() {
        Some(status) => refused(status),
        None => witness.answer(body),
    });
    let found = Log::new(5).ask(&policy(1, &[(1, &server.url)]), 60_000);
    assert_eq!((found.shortfall, found.failures), (None, vec![]));
}

#[test]
fn each_refusal_names_its_cause() {
    for (status, cause) in [
        (400, "cannot read the request"),
        (403, "does not know the key of the log log.example; send log.pub"),
        (404, "does not know the log log.example; register"),
        (418, "status 418, which is none of tlog-witness"),
        (302, "status 302"),
        (422, "another history of the log log.example"),
        (503, "status 503"),
    ] {
        let why = failure(move |_| refused(status));
        assert!(why.contains(cause), "{status}: {why}");
    }
}

#[test]
fn conflicts_without_end_and_sizes_beyond_the_log_are_refused() {
    let conflict = |size: &str| (409, SIZE_CONTENT_TYPE, format!("{size}\n"));
    let mut sizes = [1, 2].into_iter().cycle();
    let why = failure(move |_| conflict(&sizes.next().unwrap().to_string()));
    assert!(why.contains("changed with each attempt"), "{why}");
    let why = failure(move |_| conflict("6"));
    assert!(why.contains("it has cosigned 6 entries, and this log has 5"), "{why}");
    for size in ["", "-1", "05", "9999999999999999999999"] {
        let why = failure(move |_| conflict(size));
        assert!(why.contains("is no size"), "{size}: {why}");
    }
    let why = failure(|_| (409, "text/plain", "4\n".to_owned()));
    assert!(why.contains("is no size"), "{why}");
}

#[test]
fn only_true_cosignatures_of_the_witness_count() {
    let sign = |body: &[u8], seed: u8, is_of_other: bool, time: u64| -> Answer {
        let request = AddCheckpoint::parse(body).unwrap();
        let other = Log::new(4).checkpoint;
        let signed = if is_of_other { &other } else { &request.checkpoint };
        let text = signed.note().text();
        (200, "text/plain", signer(seed).sign(text, time).unwrap().line())
    };
    let why = failure(move |body| sign(body, 2, false, NOW));
    assert!(why.contains("no cosignature of the witness's key"), "{why}");
    let why = failure(move |body| sign(body, 1, true, NOW));
    assert!(why.contains("the signature of w1.example on the note is false"), "{why}");
    let why = failure(move |body| sign(body, 1, false, 0));
    assert!(why.contains("has no time"), "{why}");
    let why = failure(|_| (200, "text/plain", String::new()));
    assert!(!why.is_empty());
    let why = failure(|_| (200, "text/plain", "x".repeat(REPLY_LEN_MAX + 1)));
    assert!(why.contains("longer than 65536 bytes"), "{why}");
    // A time in the future is a cosignature, and makes no quorum.
    let server = WitnessServer::start(move |body| sign(body, 1, false, NOW + 301));
    let found = Log::new(5).ask(&policy(1, &[(1, &server.url)]), 10_000);
    assert!(found.shortfall.is_some_and(|why| why.contains("in the future: w1")));
    assert_eq!(found.failures, []);
}

#[test]
fn witness_of_another_history_refuses() {
    let mut other = honest(1, 3);
    other.seen.1 = Hash::leaf(b"of a thief");
    let server = WitnessServer::honest(other, Duration::ZERO);
    let found = Log::new(5).ask(&policy(1, &[(1, &server.url)]), 10_000);
    assert!(found.failures[0].why.contains("another history"), "{:?}", found.failures);
}

#[test]
fn checkpoint_stays_within_its_limit() {
    let server = WitnessServer::honest(honest(1, 0), Duration::ZERO);
    let (log, policies) =
        (Log::new(5), [Policy::parse(policy(1, &[(1, &server.url)]).as_bytes()).unwrap()]);
    let found = CosignRequest {
        targets: &WitnessTarget::of_policies(&policies),
        policies: &policies,
        log_keys: &[log_key().verifier().clone()],
        checkpoint: &log.checkpoint,
        checkpoint_len_max: log.checkpoint.to_text().len() + 10,
        wait: Duration::from_secs(10),
        now: || NOW,
    }
    .send(|_| Ok::<_, std::io::Error>(vec![]));
    assert!(found.failures[0].why.contains("does not fit"), "{:?}", found.failures);
}
