//! Proofs, and the exchange with a witness.

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, CheckpointError, SignedCheckpoint};
use vouch_log::key::{Algorithm, Signer, VerifierKey};
use vouch_log::merkle::{Hash, verify_consistency};
use vouch_log::note::NoteError;
use vouch_log::policy::Policy;
use vouch_log::proof::{FormatError, TlogProof};
use vouch_log::reader::LogReader;
use vouch_log::witness::{AddCheckpoint, Reply, ReplyError, RequestError, verify_cosignatures};
use vouch_xdr::Xdr as _;

use crate::{Files, entry};

const NOW: u64 = 1_800_000_000;
const ORIGIN: &str = "log.example/1";

struct Site {
    log: Signer,
    witnesses: Vec<Signer>,
    files: Files,
    roots: Vec<Hash>,
}

impl Site {
    fn new(entries: u64) -> Self {
        let (mut tree, mut roots) = (Appender::new(), vec![Hash::EMPTY_TREE]);
        for number in 0..entries {
            tree.push(&entry(number)).unwrap();
            roots.push(tree.root());
        }
        let mut files = Files::default();
        files.store(tree.finish());
        let log = Signer::from_seed(ORIGIN, Algorithm::Ed25519, &[1; 32]).unwrap();
        let kinds = [Algorithm::CosignatureEd25519, Algorithm::CosignatureMlDsa44];
        let witness = |(n, kind): (u8, &Algorithm)| {
            Signer::from_seed(&format!("w{n}.example"), *kind, &[10 + n; 32]).unwrap()
        };
        Self { log, witnesses: (0..).zip(&kinds).map(witness).collect(), files, roots }
    }

    fn checkpoint(&self, size: usize) -> SignedCheckpoint {
        let head = Checkpoint::new(ORIGIN, size as u64, self.roots[size]);
        let mut signed = SignedCheckpoint::unsigned(&head).unwrap();
        signed.note_mut().sign(&self.log, NOW).unwrap();
        signed
    }

    fn reader(&self) -> LogReader<&Files> {
        let size = self.roots.len() - 1;
        LogReader::open(&self.files, size as u64, self.roots[size]).unwrap()
    }

    fn policy(&self) -> Policy {
        let mut text = format!("log {}\n", self.log.verifier().to_text());
        for (number, witness) in self.witnesses.iter().enumerate() {
            text += &format!("witness w{number} {}\n", witness.verifier().to_text());
        }
        Policy::parse((text + "group g all w0 w1\nquorum g\n").as_bytes()).unwrap()
    }
}

/// A witness as C2SP tlog-witness describes it, as far as its answers go.
fn answer(site: &Site, seen: &mut (u64, Hash), body: &str) -> (u16, &'static str, String) {
    let request = AddCheckpoint::parse(body.as_bytes()).unwrap();
    let head = request.checkpoint.checkpoint();
    if head.origin != ORIGIN {
        return (404, "", String::new());
    }
    if request.checkpoint.note().verify(&[site.log.verifier()]).is_err() {
        return (403, "", String::new());
    }
    if request.old_size > head.size {
        return (400, "", String::new());
    }
    if request.old_size != seen.0 {
        return (409, "text/x.tlog.size", format!("{}\n", seen.0));
    }
    if verify_consistency(*seen, (head.size, head.root), &request.proof).is_err() {
        return (422, "", String::new());
    }
    *seen = (head.size, head.root);
    let cosign =
        |witness: &Signer| witness.sign(request.checkpoint.note().text(), NOW).unwrap().line();
    (200, "text/plain", site.witnesses.iter().map(cosign).collect())
}

#[test]
fn witness_is_asked_again_after_conflict_and_cosigns() {
    let site = Site::new(300);
    let keys: Vec<VerifierKey> = site.witnesses.iter().map(|w| w.verifier().clone()).collect();
    let log_keys = [site.log.verifier().clone()];
    let mut seen = (0, Hash::EMPTY_TREE);
    let mut ask = |old: u64, checkpoint: &SignedCheckpoint, proof: Vec<Hash>| {
        let body = AddCheckpoint::new(old, proof, checkpoint, &log_keys).to_text();
        let (status, kind, body) = answer(&site, &mut seen, &body);
        Reply::parse(status, kind, body.as_bytes()).unwrap()
    };
    let first = site.checkpoint(77);
    assert!(matches!(ask(0, &first, vec![]), Reply::Cosignatures(_)));
    let mut second = site.checkpoint(300);
    assert_eq!(ask(0, &second, vec![]), Reply::Conflict { size: 77 });
    assert_eq!(ask(77, &second, vec![Hash([1; 32])]), Reply::ProofRefused);
    let proof = site.reader().consistency_proof(77).unwrap();
    let Reply::Cosignatures(lines) = ask(77, &second, proof) else { panic!("refused") };
    for line in verify_cosignatures(&second, lines, &keys).unwrap() {
        second.note_mut().add(line).unwrap();
    }
    // The same size again, and a size that is gone.
    assert!(matches!(ask(300, &second, vec![]), Reply::Cosignatures(_)));
    assert_eq!(ask(300, &first, vec![]), Reply::BadRequest);
    assert_eq!(ask(77, &first, vec![]), Reply::Conflict { size: 300 });

    let policy = site.policy();
    for index in [0, 76, 255, 256, 299] {
        let hashes = site.reader().inclusion_proof(index).unwrap();
        let proof = TlogProof { extra: None, index, hashes, checkpoint: second.clone() };
        let text = proof.to_text();
        let proof = TlogProof::parse(text.as_bytes()).unwrap();
        assert_eq!(proof.to_text(), text);
        assert_eq!(TlogProof::from_xdr(&proof.to_xdr()).unwrap(), proof);
        let leaf = Hash::leaf(&entry(index));
        let belief = proof.verify(leaf, &policy, &[], NOW).unwrap();
        assert_eq!((belief.cosigned.len(), belief.quorum_time), (2, Some(NOW)));
        assert!(proof.verify(Hash::leaf(b"other"), &policy, &[], NOW).is_err());
        assert!(
            TlogProof { index: index ^ 1, ..proof.clone() }
                .verify(leaf, &policy, &[], NOW)
                .is_err()
        );
        let mut unseen = site.checkpoint(300);
        unseen.note_mut().sign(&site.witnesses[0], NOW).unwrap();
        assert!(TlogProof { checkpoint: unseen, ..proof }.verify(leaf, &policy, &[], NOW).is_err());
    }
}

#[test]
fn request_carries_signatures_of_log_only() {
    let site = Site::new(1);
    let mut checkpoint = site.checkpoint(1);
    checkpoint.note_mut().sign(&site.witnesses[0], NOW).unwrap();
    let old = Signer::from_seed(ORIGIN, Algorithm::Ed25519, &[2; 32]).unwrap();
    checkpoint.note_mut().sign(&old, NOW).unwrap();
    let request = AddCheckpoint::new(0, vec![], &checkpoint, &[site.log.verifier().clone()]);
    assert_eq!(request.checkpoint, site.checkpoint(1));
}

#[test]
fn cosignatures_of_a_reply_are_verified() {
    let site = Site::new(5);
    let (checkpoint, witness) = (site.checkpoint(5), &site.witnesses[0]);
    let keys = [witness.verifier().clone()];
    let sign = |signer: &Signer, time| signer.sign(checkpoint.note().text(), time).unwrap();
    let verify = |lines| verify_cosignatures(&checkpoint, lines, &keys);
    let good = sign(witness, NOW);
    let other = sign(&site.witnesses[1], NOW);
    assert_eq!(verify(vec![other.clone(), good.clone()]), Ok(vec![good.clone()]));
    assert_eq!(verify(vec![other]), Err(ReplyError::Note(NoteError::Unsigned)));
    let no_time = Err(ReplyError::NoTime { name: "w0.example".into() });
    assert_eq!(verify(vec![sign(witness, 0)]), no_time);
    let mut bad = good.clone();
    bad.bytes[7] ^= 1;
    let is_false = Err(NoteError::False { name: "w0.example".into() }.into());
    assert_eq!(verify(vec![good, bad]), is_false);
}

#[test]
fn replies_are_read_strictly() {
    let parse = |status, kind, body: &str| Reply::parse(status, kind, body.as_bytes());
    for (status, reply) in [
        (404, Reply::UnknownLog),
        (403, Reply::UnknownKey),
        (422, Reply::ProofRefused),
        (400, Reply::BadRequest),
        (429, Reply::Busy(429)),
        (503, Reply::Busy(503)),
        (302, Reply::Unexpected(302)),
    ] {
        assert_eq!(parse(status, "text/html", "<html>\0"), Ok(reply));
    }
    let size = "text/x.tlog.size";
    assert_eq!(parse(409, size, "0\n"), Ok(Reply::Conflict { size: 0 }));
    for (kind, body) in [
        (size, "7"),
        (size, "07\n"),
        (size, "7\n\n"),
        (size, "-7\n"),
        (size, ""),
        ("text/plain", "7\n"),
        (size, "9223372036854775808\n"),
        (size, "7 \n"),
    ] {
        assert_eq!(parse(409, kind, body), Err(ReplyError::Size), "{body:?}");
    }
    for body in ["", "\n", "— x\n", "— x AAAAAAA=", "x\n— x AAAAAAA=\n"] {
        assert!(matches!(parse(200, "", body), Err(ReplyError::Note(_))), "{body:?}");
    }
    assert_eq!(parse(200, "", "— x AAAAAAA=\r\n"), Err(ReplyError::Text));
    assert_eq!(parse(200, "", &"x".repeat(70_000)), Err(ReplyError::Text));
}

#[test]
fn malformed_requests_and_proofs_are_refused() {
    let site = Site::new(3);
    let request = AddCheckpoint {
        old_size: 1,
        proof: site.reader().consistency_proof(1).unwrap(),
        checkpoint: site.checkpoint(3),
    };
    let text = request.to_text();
    let parse = |text: &str| AddCheckpoint::parse(text.as_bytes()).err();
    assert_eq!(AddCheckpoint::parse(text.as_bytes()), Ok(request));
    for (from, to, error) in [
        ("old 1\n", "", RequestError::OldSize),
        ("old 1", "old 01", RequestError::OldSize),
        ("old 1", "old +1", RequestError::OldSize),
        ("old 1", "old 1\r", RequestError::OldSize),
        ("\n\nlog", "\nlog", RequestError::Hash),
        ("=\n\nlog", "==\n\nlog", RequestError::Hash),
        ("\n3\n", "\n03\n", RequestError::Checkpoint(CheckpointError::Size)),
        ("\n3\n", "\n\n", RequestError::Checkpoint(CheckpointError::Size)),
        ("\n3\n", "\n0\n", RequestError::Checkpoint(CheckpointError::Root)),
    ] {
        assert_eq!(parse(&text.replacen(from, to, 1)), Some(error), "{from:?} by {to:?}");
    }
    let hashes = format!("old 1\n{}", format!("{}\n", Hash([0; 32])).repeat(64));
    assert_eq!(parse(&text.replacen("old 1\n", &hashes, 1)), Some(RequestError::Hash));

    let proof = TlogProof {
        extra: Some(vec![1, 2]),
        index: 0,
        hashes: vec![],
        checkpoint: site.checkpoint(1),
    };
    let text = proof.to_text();
    assert_eq!(TlogProof::parse(text.as_bytes()), Ok(proof));
    for (from, to, error) in [
        ("@v1\n", "@v2\n", FormatError::Header),
        ("@v1\n", "@v1\r\n", FormatError::Header),
        ("extra AQI=", "extra AQJ=", FormatError::Extra),
        ("index 0\n", "", FormatError::Index),
        ("index 0", "index 00", FormatError::Index),
        ("index 0\n", "index 0\nAAAA\n", FormatError::Hash),
        ("\n\nlog", "\n\n\nlog", FormatError::Checkpoint(CheckpointError::Origin)),
    ] {
        let result = TlogProof::parse(text.replacen(from, to, 1).as_bytes());
        assert_eq!(result, Err(error), "{from:?} by {to:?}");
    }
    let long = format!("extra {}\n", data_encoding::BASE64.encode(&[0; 32 * 1024 + 1]));
    let result = TlogProof::parse(text.replacen("extra AQI=\n", &long, 1).as_bytes());
    assert_eq!(result, Err(FormatError::Extra));
}

#[test]
fn checkpoint_with_extension_lines_keeps_them() {
    let text = format!("{ORIGIN}\n1\n{}\none\ntwo\n", Hash([1; 32]));
    let checkpoint = Checkpoint::parse(&text).unwrap();
    assert_eq!((checkpoint.extensions.as_str(), checkpoint.text()), ("one\ntwo\n", text.clone()));
    let mut signed = SignedCheckpoint::unsigned(&checkpoint).unwrap();
    let site = Site::new(1);
    for signer in site.witnesses.iter().chain([&site.log]) {
        signed.note_mut().sign(signer, NOW).unwrap();
    }
    let policy = site.policy();
    policy.check(&signed, &[], NOW).unwrap();
    // Ed25519 covers them, ML-DSA-44 does not (C2SP tlog-cosignature).
    let changed = signed.to_text().replacen("two", "too", 1);
    let changed = SignedCheckpoint::parse(changed.as_bytes()).unwrap();
    let lattice = site.witnesses[1].verifier();
    assert_eq!(changed.note().verify(&[lattice]).unwrap().len(), 1);
    assert!(policy.check(&changed, &[], NOW).is_err());
    for bad in ["one", "\n", "one\n\n", "\none\n"] {
        let text = format!("{ORIGIN}\n1\n{}\n{bad}", Hash([1; 32]));
        assert_eq!(Checkpoint::parse(&text), Err(CheckpointError::Lines), "{bad:?}");
    }
}
