use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::case::{Case, Primitive};
use crate::subject::{ClosureSubject, SubjectInfo};
use crate::{Error, Sample, Subject};
use vouch_tree::frame::{self, FrameKind};
use vouch_tree::key::{Purpose, SecretKey};
use vouch_tree::{Iv, LEAF_LEN_MAX};

/// Lengths to hash: the paper's block, and the format's small and largest leaves.
pub const HASHED_LENGTHS: [(&str, u64); 4] = [
    ("1 KiB", 1 << 10),
    ("8 KiB", 8 << 10),
    ("64 KiB", 64 << 10),
    ("128 KiB, a full leaf", LEAF_LEN_MAX as u64),
];

pub fn subject() -> Box<dyn Subject> {
    let details = [
        "Ed25519 over an fsinfo's length; strict verification",
        "keyed BLAKE3 of a frame, as its handle",
    ]
    .map(str::to_owned);
    let about = SubjectInfo {
        label: "one core".into(),
        target: "this processor".into(),
        sec: None,
        details: details.into(),
    };
    Box::new(ClosureSubject::new(about, Box::new(measure)))
}

fn measure(case: &Case) -> Result<Sample, Error> {
    let Case::Primitive { work, len, seconds } = *case else {
        return Err(Error::Input("only primitives are measured here".into()));
    };
    // Speed depends on neither the key nor the bytes.
    let (key, body) = (SecretKey::from_seed(&[7; 32]), [9; FSINFO_LEN]);
    let (public, signature) = (key.public(), key.sign(Purpose::Fsinfo, &body));
    let (iv, stored) =
        (Iv::from_bytes([7; 32]), frame::build(FrameKind::Leaf, &vec![9; len as usize], 0));
    let once: Box<dyn Fn() -> bool> = match work {
        Primitive::Sign => Box::new(|| key.sign(Purpose::Fsinfo, black_box(&body)) == signature),
        Primitive::Verify => {
            Box::new(|| public.verify(Purpose::Fsinfo, black_box(&body), &signature))
        }
        Primitive::Hash => {
            let handle = iv.handle_of(&stored);
            Box::new(move || iv.handle_of(black_box(&stored)) == handle)
        }
    };
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..BATCH {
            if !once() {
                return Err(Error::Corrupt("a primitive gives another result".into()));
            }
        }
        count += BATCH;
    }
    Ok(Sample {
        seconds: begun.elapsed().as_secs_f64(),
        operations: count,
        bytes: count * len,
        ..Sample::default()
    })
}

const FSINFO_LEN: usize = 256;
const BATCH: u64 = 8;
