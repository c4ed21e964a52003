//! Block functions for each kind of CPU, in a table chosen once at run time. A kernel processes as
//! many items, each with its own key or state, as it has lanes. Tests compare all kernels with the
//! plain one.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod interface;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "hashes have no lanes there"))]
mod lanes;
pub(crate) mod plain;
#[cfg(target_arch = "x86_64")]
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub(crate) use interface::{
    CbcItem, HashFew, HashItem, LANES_MAX, SHORTS_MAX, STITCHED_MAX, Segment, StitchOne, Stitched,
    StitchedOne,
};
use interface::{DecryptKernel, EncryptKernel, HashKernel, StitchedKernel};

/// The cause why a set of kernels was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// The CPU has no set of that name.
    #[error("this CPU has plain, {}", lower_case_names())]
    Unknown,
    /// Messages are being sealed with another set, or one was chosen before.
    #[error("messages are already being sealed")]
    InUse,
}

fn lower_case_names() -> String {
    let names = Kernels::available().iter().skip(1).map(|kernels| kernels.name.to_lowercase());
    names.collect::<Vec<_>>().join(", ")
}

/// Kernels for one instruction set. All sets compute the same.
#[derive(Clone, Copy)]
pub struct Kernels {
    name: &'static str,
    pub(crate) lanes: usize,
    pub(crate) shorts: usize,
    pub(crate) encrypt: &'static EncryptKernel,
    pub(crate) decrypt: &'static DecryptKernel,
    pub(crate) sha1: &'static HashKernel<[u32; 5]>,
    pub(crate) sha256: &'static HashKernel<[u32; 8]>,
    pub(crate) sha512: &'static HashKernel<[u64; 8]>,
    pub(crate) stitched: Option<StitchedKernel>,
    pub(crate) stitched512: Option<StitchOne<[u64; 8]>>,
}

impl Kernels {
    /// The fastest set for this CPU, unless [`Kernels::choose`] came first.
    pub fn best() -> &'static Kernels {
        CHOSEN
            .get_or_init(|| Kernels::available().last().expect("the plain kernels run everywhere"))
    }

    /// Makes the whole process use a narrower set, to measure the gain of wide instructions. Call
    /// before any message is sealed.
    ///
    /// # Errors
    /// The CPU has no set of that name, or a set is in use already.
    pub fn choose(name: &str) -> Result<(), ChooseError> {
        let wanted = |kernels: &&Kernels| {
            kernels.name.eq_ignore_ascii_case(name) || (kernels.name == PLAIN && name == "plain")
        };
        let kernels = Kernels::available().iter().find(wanted).ok_or(ChooseError::Unknown)?;
        CHOSEN.set(kernels).map_err(|_| ChooseError::InUse)
    }

    /// All sets that this CPU can run, slowest first.
    pub fn available() -> &'static [Kernels] {
        static AVAILABLE: OnceLock<Vec<Kernels>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// RFC 3962 messages sealed fastest in lockstep: one pass beats more lanes.
    pub(crate) fn stitched_lanes(&self) -> usize {
        self.stitched.map_or(self.lanes, |stitched| stitched.messages_max)
    }

    /// Long messages sealed fastest side by side; more gain nothing.
    pub fn long_messages(&self) -> usize {
        self.stitched_lanes().min(16)
    }

    /// The name for [`Kernels::choose`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kernel of each algorithm, for people.
    pub fn describe(&self) -> String {
        let Kernels { encrypt, decrypt, sha1, sha256, sha512, .. } = self;
        format!(
            "encrypt {}, decrypt {}, sha1 {}, sha256 {}, sha384 {}",
            encrypt.name, decrypt.name, sha1.name, sha256.name, sha512.name
        )
    }
}

static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();

/// RustCrypto uses AES instructions too.
const PLAIN: &str = "RustCrypto (detects the CPU)";

#[cfg(test)]
pub(crate) const ALL_NAMES: [&str; 7] =
    [PLAIN, "AES-NI", "AVX2", "VAES-256", "AVX-512", "VAES-512", "ARMv8"];

fn detect() -> Vec<Kernels> {
    let mut sets = vec![Kernels {
        name: PLAIN,
        lanes: 16,
        shorts: 2,
        encrypt: &plain::ENCRYPT,
        decrypt: &plain::DECRYPT,
        sha1: &plain::SHA1,
        sha256: &plain::SHA256,
        sha512: &plain::SHA512,
        stitched: None,
        stitched512: None,
    }];
    detect_more(&mut sets);
    sets
}

#[cfg(target_arch = "x86_64")]
fn detect_more(sets: &mut Vec<Kernels>) {
    macro_rules! has {
        ($($feature:tt),+) => { $(std::arch::is_x86_feature_detected!($feature))&&+ };
    }
    if !has!("aes", "ssse3", "sse4.1") {
        return;
    }
    let sha = has!("sha");
    let sse = Kernels {
        name: "AES-NI",
        lanes: 8,
        shorts: 2,
        encrypt: &x86::aesni::ENCRYPT,
        decrypt: &x86::aesni::DECRYPT,
        sha1: if sha { &x86::shani::SHA1 } else { &plain::SHA1 },
        sha256: if sha { &x86::shani::SHA256 } else { &plain::SHA256 },
        sha512: &plain::SHA512,
        stitched: sha.then_some(StitchedKernel {
            messages_max: x86::stitched::MESSAGES_MAX,
            seal: x86::stitched::seal,
        }),
        stitched512: None,
    };
    sets.push(sse);
    if !has!("avx2", "bmi1", "bmi2") {
        return;
    }
    let avx2 = Kernels {
        name: "AVX2",
        lanes: 16,
        sha1: if sha { &x86::avx2::SHA1 } else { &x86::avx2::SHA1_ALONE },
        // Eight lanes of AVX2 are no faster than SHA-NI for this hash.
        sha256: if sha { sse.sha256 } else { &x86::avx2::SHA256_ALONE },
        sha512: &x86::avx2::SHA512,
        stitched512: Some(x86::sha512_cbc::seal as StitchOne<[u64; 8]>),
        ..sse
    };
    sets.push(avx2);
    let vaes = has!("vaes");
    let vaes256 = Kernels {
        name: "VAES-256",
        encrypt: &x86::vaes256::ENCRYPT,
        decrypt: &x86::vaes256::DECRYPT,
        ..avx2
    };
    if vaes {
        sets.push(vaes256);
    }
    if !has!("avx512f", "avx512bw", "avx512vl") {
        return;
    }
    let avx512 = Kernels {
        name: "AVX-512",
        shorts: SHORTS_MAX,
        sha1: if sha { &x86::avx512::SHA1 } else { &x86::avx512::SHA1_ALONE },
        sha256: if sha { &x86::avx512::SHA256 } else { &x86::avx512::SHA256_ALONE },
        sha512: &x86::avx512::SHA512,
        ..if vaes { vaes256 } else { avx2 }
    };
    sets.push(avx512);
    if vaes {
        sets.push(Kernels {
            name: "VAES-512",
            lanes: LANES_MAX,
            encrypt: &x86::vaes512::ENCRYPT,
            decrypt: &x86::vaes512::DECRYPT,
            stitched: sha.then_some(StitchedKernel {
                messages_max: x86::stitched512::MESSAGES_MAX,
                seal: x86::stitched512::seal,
            }),
            ..avx512
        });
    }
}

#[cfg(target_arch = "aarch64")]
fn detect_more(sets: &mut Vec<Kernels>) {
    if std::arch::is_aarch64_feature_detected!("aes") {
        let plain = sets[0];
        sets.push(Kernels {
            name: "ARMv8",
            lanes: 8,
            encrypt: &aarch64::ENCRYPT,
            decrypt: &aarch64::DECRYPT,
            ..plain
        });
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect_more(_: &mut Vec<Kernels>) {}
