//! Measures what three Ed25519 cosignatures cost a reader who opens a tree: verification of the
//! evidence with them, beside the same without a quorum.

use std::time::{Duration, Instant};

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::key::{Algorithm, Signer};
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;
use vouch_log::revision::{LogCert, LogSigners, origin, revision_entry};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_xdr::Xdr as _;

const PAIRS: usize = 500;
const NOW: u64 = 1_800_000_000;
/// As long as a signed fsinfo of a pair of keys.
const SIGNED: [u8; 8000] = [7; 8000];

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = SecretKey::from_seeds(&[1; 32], &[2; 32]);
    let hostid = root.public().hostid();
    let signers = LogSigners::from_seeds(&hostid, &[3; 32], Some(&[4; 32]))?;
    let mut tree = Appender::new();
    tree.push(&revision_entry(&SIGNED))?;
    let mut checkpoint =
        SignedCheckpoint::unsigned(&Checkpoint::new(&origin(&hostid), 1, tree.root()))?;
    for signer in signers.all() {
        checkpoint.note_mut().sign(signer, NOW)?;
    }
    let signing = SigningCert::issue(&root, root.public(), 1, 0, u64::MAX);
    let (cert, _) = LogCert::issue(&root, signing, hostid, signers.keys(), None);
    let proof = TlogProof { extra: None, index: 0, hashes: Vec::new(), checkpoint };
    let plain = LogEvidence { cert, proof };
    let mut cosigned = plain.clone();
    let mut policy = String::new();
    for number in 1..=3 {
        let name = format!("w{number}.example");
        let witness = Signer::from_seed(&name, Algorithm::CosignatureEd25519, &[number; 32])?;
        cosigned.proof.checkpoint.note_mut().sign(&witness, NOW)?;
        policy += &format!("witness w{number} {}\n", witness.verifier().to_text());
    }
    let demanded = Policy::parse((policy + "group g 3 w1 w2 w3\nquorum g\n").as_bytes())?;
    let none = Policy::without_witnesses();
    let sides = [(plain.to_xdr(), [none]), (cosigned.to_xdr(), [demanded])];
    let mut times = [const { Vec::new() }; 2];
    let mut differences = Vec::new();
    for _ in 0..PAIRS {
        for ((bytes, policies), times) in sides.iter().zip(&mut times) {
            let start = Instant::now();
            let evidence = LogEvidence::from_xdr(bytes)?;
            evidence.verify(&hostid, &SIGNED, policies, NOW)?;
            times.push(start.elapsed());
        }
        let last = |times: &Vec<Duration>| times[times.len() - 1];
        differences.push(last(&times[1]).saturating_sub(last(&times[0])));
    }
    let [without, with] = times.each_mut().map(|times| median(times));
    let more = median(&mut differences);
    println!(
        "{PAIRS} pairs, medians: {without:.1?} without a quorum, {with:.1?} with three cosignatures"
    );
    println!("three cosignatures: {more:.1?} more");
    Ok(())
}
