//! The bytes that are ours: origin, entry and certificate (docs/formats/log.md). A changed file
//! needs a new version. To add a vector, run with `VOUCH_WRITE_GOLDEN=1` and review the file.

use std::path::PathBuf;

use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_log::key::{Algorithm, Signer};
use vouch_log::merkle::Hash;
use vouch_log::proof::TlogProof;
use vouch_log::revision::*;
use vouch_log::trail::*;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Content, Counts, Fsinfo, HostId, Inode, Iv, SignedFsinfo, Timestamp};
use vouch_xdr::{Writer, Xdr};

fn check(name: &str, bytes: &[u8]) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let hex: String = bytes
        .chunks(32)
        .map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n")
        .collect();
    if std::env::var_os("VOUCH_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &hex).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), hex, "{name}: the format has changed");
}

fn golden(name: &str) -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let hex: String = std::fs::read_to_string(path).unwrap().split_whitespace().collect();
    data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap()
}

fn root() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn signed_fsinfo() -> Vec<u8> {
    let signing = SecretKey::from_seed(&[2; 32]);
    let cert = SigningCert::issue(&root(), signing.public(), 1, 1_000, 2_000);
    signed_by(&root(), &signing, cert)
}

fn signed_by(root: &SecretKey, signing: &SecretKey, cert: SigningCert) -> Vec<u8> {
    let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
    let inode = Inode { mtime: Timestamp { s: 1_500, ns: 0 }, ..Inode::new(0o755, content) };
    let fsinfo = Fsinfo {
        hostid: root.public().hostid(),
        revision: 1,
        start: 1_500,
        duration_s: 100,
        iv: Iv::from_bytes([3; 32]),
        root: inode,
        previous: None,
        counts: Counts { directories: 1, ..Counts::default() },
        tag: String::new(),
    };
    SignedFsinfo::sign(&fsinfo, signing, cert).to_xdr()
}

fn signers(log: &HostId) -> LogSigners {
    LogSigners::from_seeds(log, &[4; 32], Some(&[5; 32])).unwrap()
}

#[test]
fn origin_names_the_root_key() {
    let hostid = root().public().hostid();
    let text = origin(&hostid);
    assert_eq!(text, format!("vouch/v1/log/{hostid}"));
    assert_eq!(parse_origin(&text), Some(hostid));
    assert_eq!(parse_origin(&text.to_uppercase()), None);
    assert_eq!(parse_origin(&format!("vouch/v1/log/{}", hostid.to_string().to_uppercase())), None);
    assert_eq!(parse_origin(&format!("{text}/")), None);
}

#[test]
fn entry_holds_signed_fsinfo() {
    let signed = signed_fsinfo();
    let entry = revision_entry(&signed);
    check("entry", &entry);
    let (fsinfo, bytes) = parse_revision_entry(&entry).unwrap();
    assert_eq!(bytes, signed);
    fsinfo.open(&root().public().hostid()).unwrap();
    assert!(parse_revision_entry(&signed).is_err());
    assert!(parse_revision_entry(&entry[..entry.len() - 1]).is_err());
    assert!(parse_revision_entry(&[&entry[..], &[0; 4]].concat()).is_err());
    assert!(parse_revision_entry(&vec![0; 100_000]).is_err());
}

#[test]
fn evidence_holds_certificate_and_proof() {
    let (hostid, signed) = (root().public().hostid(), signed_fsinfo());
    let signers = signers(&hostid);
    let signing = SigningCert::issue(&root(), root().public(), 1, 1_000, 2_000);
    let (cert, _) = LogCert::issue(&root(), signing, hostid, signers.keys(), None);
    let head = Checkpoint::new(&origin(&hostid), 1, Hash::leaf(&revision_entry(&signed)));
    let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
    signers.all().for_each(|signer| checkpoint.note_mut().sign(signer, 1_500).unwrap());
    let proof = TlogProof { extra: Some(b"x".to_vec()), index: 0, hashes: Vec::new(), checkpoint };
    let evidence = LogEvidence { cert, proof };
    let bytes = evidence.to_xdr();
    check("evidence-2", &bytes);
    // Readers take earlier ones, with the text of the proof.
    let mut w = Writer::new();
    w.opaque_fixed(b"vouch log proof v1\n\0");
    evidence.cert.encode(&mut w);
    w.opaque(evidence.proof.to_text().as_bytes());
    let earlier = w.into_bytes();
    assert!(bytes.len() + 800 < earlier.len(), "{} and {}", bytes.len(), earlier.len());
    for bytes in [&bytes, &earlier] {
        assert!(is_evidence(bytes));
        assert_eq!(LogEvidence::from_xdr(bytes).unwrap(), evidence);
        evidence.verify(&hostid, &signed, &[], 1_500).unwrap();
        for bit in (0..bytes.len() * 8).step_by(7) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(LogEvidence::from_xdr(&bad).map_or(true, |found| found != evidence), "{bit}");
        }
    }
    // A note without a signature or a text without its end cannot be written.
    for (from, to) in [(&b"\0\0\0\x02\0\0\0"[..], &b"\0\0\0\0\0\0\0"[..]), (b"=\n", b"==")] {
        let mut bad = bytes.clone();
        let place = bad.windows(from.len()).rposition(|window| window == from).unwrap();
        bad[place..place + from.len()].copy_from_slice(to);
        LogEvidence::from_xdr(&bad).unwrap_err();
    }
}

/// Of a replica, about a tree of pairs, a log of 1,000 revisions, and three witnesses.
#[test]
fn first_reply_fits_in_first_window() {
    const WINDOW: usize = 10 * 1448;
    let root = SecretKey::from_seeds(&[1; 32], &[2; 32]);
    let hostid = root.public().hostid();
    let signers = signers(&hostid);
    let signing = SigningCert::issue(&root, root.public(), 1, 1_000, 2_000);
    let (cert, signing) = LogCert::issue(&root, signing, hostid, signers.keys(), None);
    let signed = signed_by(&root, &root, signing);
    let head = Checkpoint::new(&origin(&hostid), 1_000, Hash::leaf(b"x"));
    let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
    signers.all().for_each(|signer| checkpoint.note_mut().sign(signer, 1_500).unwrap());
    for number in 1..=3 {
        let name = format!("witness{number}.example.org");
        let witness = Signer::from_seed(&name, Algorithm::CosignatureEd25519, &[number; 32]);
        checkpoint.note_mut().sign(&witness.unwrap(), 1_500).unwrap();
    }
    let proof =
        TlogProof { extra: None, index: 999, hashes: vec![Hash::leaf(b"y"); 10], checkpoint };
    let evidence = LogEvidence { cert, proof }.to_statement(&signed);
    let room = WINDOW - signed.len() - evidence.len();
    assert!(room > 500, "for the small file and the reply's own fields: {room}");
}

#[test]
fn certificate_names_log_and_keys_of_one_tree() {
    let hostid = root().public().hostid();
    let signers = signers(&hostid);
    let policy = CertPolicy::parse(b"quorum none\n").unwrap();
    let signing = SigningCert::issue(&root(), root().public(), 1, 1_000, 2_000);
    let (cert, signing) = LogCert::issue(&root(), signing, hostid, signers.keys(), Some(policy));
    let bytes = cert.to_xdr();
    check("log-cert-2", &bytes);
    assert!(bytes.len() <= LOG_CERT_LEN_MAX);
    assert_eq!(LogCert::from_xdr(&bytes).unwrap(), cert);
    // Readers take earlier ones, with a signature of their own.
    let earlier = golden("log-cert");
    for cert in [LogCert::from_xdr(&earlier).unwrap(), cert.clone()] {
        assert!(cert.is_certified(&hostid, None));
        assert!(!cert.is_certified(&SecretKey::from_seed(&[9; 32]).public().hostid(), None));
        assert_eq!((cert.serial(), cert.keys()), (1, &signers.keys()));
    }
    assert_eq!(LogCert::from_xdr(&earlier).unwrap().to_xdr(), earlier);
    // Another certificate of the root key does not name it, even if the caller knows that one.
    let other = signing.with_log(&root(), [0; 32]);
    assert!(cert.is_certified(&hostid, Some(&other)));
    let mut forged = cert.to_xdr();
    let (from, to) = (cert.signing_cert().unwrap().to_xdr(), other.to_xdr());
    let place = forged.len() - from.len();
    forged[place..].copy_from_slice(&to);
    assert!(!LogCert::from_xdr(&forged).unwrap().is_certified(&hostid, Some(&other)));
    for (time, is_valid) in [(999, false), (1_000, true), (1_999, true), (2_000, false)] {
        assert_eq!(cert.is_valid_at(time), is_valid, "{time}");
    }
    let pair = SecretKey::from_seeds(&[1; 32], &[2; 32]);
    let signing = SigningCert::issue(&pair, pair.public(), 1, 0, 9).witnessed(&pair);
    let longest = format!("quorum none\n{}", "\n".repeat(CERT_POLICY_LEN_MAX - 12));
    let policy = CertPolicy::parse(longest.as_bytes()).unwrap();
    let (long, _) = LogCert::issue(&pair, signing, hostid, signers.keys(), Some(policy));
    assert!(long.to_xdr().len() <= LOG_CERT_LEN_MAX, "{}", long.to_xdr().len());
    // Every bit counts; a key that is no point is malformed.
    for bytes in [&bytes, &earlier] {
        for bit in (0..bytes.len() * 8).step_by(7) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let accepted =
                LogCert::from_xdr(&bad).is_ok_and(|cert| cert.is_certified(&hostid, None));
            assert!(!accepted, "bit {bit}");
        }
    }
    // A site's log: its root key names the log, the tree's certifies it. One key is enough.
    let site = SecretKey::from_seed(&[7; 32]).public().hostid();
    let signers = LogSigners::from_seeds(&site, &[4; 32], None).unwrap();
    let signing = SigningCert::issue(&root(), root().public(), 2, 0, 9);
    let (cert, _) = LogCert::issue(&root(), signing, site, signers.keys(), None);
    let cert = LogCert::from_xdr(&cert.to_xdr()).unwrap();
    assert!(cert.is_certified(&hostid, None) && *cert.log() == site && cert.serial() == 2);
    assert_eq!(cert.keys().all().len(), 1);
    assert_eq!(cert.keys().ed25519().name(), origin(&site));
    assert!(cert.policy().is_none());
}

#[test]
fn certificate_refuses_policy_that_nobody_can_meet() {
    assert!(CertPolicy::parse(b"").is_err());
    assert!(CertPolicy::parse(b"quorum nobody\n").is_err());
    assert!(
        CertPolicy::parse(&[&[b'#'; CERT_POLICY_LEN_MAX][..], b"\nquorum none"].concat()).is_err()
    );
}

#[test]
fn both_keys_sign_checkpoints() {
    let hostid = root().public().hostid();
    let signers = signers(&hostid);
    let head = Checkpoint::new(&origin(&hostid), 1, Hash::leaf(&revision_entry(&signed_fsinfo())));
    let mut signed = SignedCheckpoint::unsigned(&head).unwrap();
    for signer in signers.all() {
        signed.note_mut().sign(signer, 1_500).unwrap();
    }
    check("checkpoint", signed.to_text().as_bytes());
    let policy = vouch_log::policy::Policy::parse(b"quorum none\n").unwrap();
    policy.check(&signed, &signers.keys().all(), 1_500).unwrap();
}

#[test]
fn entry_of_a_trail_holds_a_seal() {
    let seal: [u8; SEAL_FIELDS_LEN] = std::array::from_fn(|place| place as u8);
    let entry = seal_entry(&seal);
    check("seal-entry", &entry);
    assert_eq!(parse_seal_entry(&entry), Some(&seal));
    assert_eq!(parse_seal_entry(&entry[..entry.len() - 1]), None);
    assert_eq!(parse_seal_entry(&[&entry[..], &[0]].concat()), None);
    assert_eq!(parse_seal_entry(&revision_entry(&signed_fsinfo())), None);
    assert!(parse_revision_entry(&entry).is_err());
}

#[test]
fn log_of_trails_is_named_by_its_first_key() {
    let signers = TrailSigners::from_seeds(&[4; 32], &[5; 32]).unwrap();
    let hostid = SecretKey::from_seeds(&[4; 32], &[5; 32]).public().hostid();
    assert_eq!(signers.origin(), format!("vouch/v1/trails/{hostid}"));
    assert_eq!(parse_trail_origin(signers.origin()), Some(hostid));
    assert_eq!(
        (parse_origin(signers.origin()), parse_trail_origin(&origin(&hostid))),
        (None, None)
    );
    let read = TrailSigners::parse(&signers.to_text()).unwrap();
    assert_eq!(read.keys(), signers.keys());
    let first = signers.to_text().lines().next().unwrap().to_owned();
    assert!(TrailSigners::parse(&first).is_none());
    assert!(TrailSigners::parse(&format!("{first}\n{first}\n")).is_none());
    let of_tree = self::signers(&hostid);
    let text: String = of_tree.all().map(|signer| signer.to_text().to_string() + "\n").collect();
    assert!(TrailSigners::parse(&text).is_none());
}
