//! Keys, confounders and bodies are secrets: no jump and no address depends on them, in any kernel
//! set that valgrind can run (it has AES and AVX2, but neither SHA nor AVX-512 instructions).

use vouch_testkit::memcheck::{hide, is_in_memcheck, publish};

use super::bytes;
use crate::kernels::Kernels;
use crate::mic::verify_many_with;
use crate::*;

fn sides(enctype: Enctype) -> (ContextKeys, ContextKeys) {
    let side = |role| {
        let mut key = bytes(7, enctype.key_len());
        hide(&mut key);
        ContextKeys::new(enctype, &key, role, false).expect("the enctype's length")
    };
    (side(Role::Initiator), side(Role::Acceptor))
}

/// As a peer sees it: the key and the body stay secrets.
fn sealed(kernels: &Kernels, keys: &ContextKeys, len: usize) -> Vec<u8> {
    let mut token = vec![0; keys.header_len()];
    let mut body = bytes(9, len);
    hide(&mut body);
    token.extend_from_slice(&body);
    token.resize(token.len() + keys.trailer_len(), 0);
    let mut confounder = [3; CONFOUNDER_LEN];
    hide(&mut confounder);
    let mut jobs = [SealJob::new(keys, 5, confounder, &mut token)];
    seal_many_with(kernels, &mut jobs);
    assert_eq!(jobs[0].result, Ok(()));
    publish(&mut token);
    token
}

fn check(kernels: &Kernels, enctype: Enctype, len: usize) {
    let (client, server) = sides(enctype);
    for altered in [None, Some(16), Some(client.header_len()), Some(usize::MAX)] {
        let mut token = sealed(kernels, &client, len);
        if let Some(at) = altered {
            let at = at.min(token.len() - 1);
            token[at] ^= 1;
        }
        let mut jobs = [OpenJob::new(&server, &mut token)];
        open_many_with(kernels, &mut jobs);
        assert_eq!(
            jobs[0].result.is_ok(),
            altered.is_none(),
            "{} {enctype:?} {len}",
            kernels.name()
        );
    }

    let mut message = bytes(11, len);
    hide(&mut message);
    let parts = [&message[..]];
    let mut jobs = [MicJob::new(&client, 6, &parts)];
    mic_many_with(kernels, &mut jobs);
    let mut token = jobs[0].token.as_bytes().to_vec();
    publish(&mut token);
    for holds in [true, false] {
        let mut jobs = [VerifyJob::new(&server, &parts, &token)];
        verify_many_with(kernels, &mut jobs);
        assert_eq!(jobs[0].result.is_ok(), holds);
        *token.last_mut().expect("a checksum") ^= 1;
    }
}

#[test]
#[ignore = "needs valgrind"]
fn run_time_depends_on_no_secret() {
    if !is_in_memcheck("tests::constant_time::run_time_depends_on_no_secret") {
        return;
    }
    for kernels in Kernels::available() {
        for enctype in Enctype::ALL {
            for len in [0, 1, 15, 16, 17, 33, 100, 600, 4100] {
                check(kernels, enctype, len);
            }
        }
        eprintln!("{}: no jump and no address depends on a secret", kernels.name());
    }
}

/// The measure itself.
#[test]
#[ignore = "needs valgrind"]
#[should_panic(expected = "depends on uninitialised value")]
fn comparison_that_stops_early_is_found() {
    if is_in_memcheck("tests::constant_time::comparison_that_stops_early_is_found") {
        let (mut secret, guess) = (bytes(1, 16), bytes(2, 16));
        hide(&mut secret);
        let same = secret.iter().zip(&guess).take_while(|(one, other)| one == other).count();
        eprintln!("{}", if same == 16 { "same" } else { "other" });
        panic!("depends on uninitialised value");
    }
}
