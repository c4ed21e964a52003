//! Tokens of RFC 4121 from an attacker: opening and verifying arbitrary bytes must not panic, and a
//! token made without the key is refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_krb5_seal::{ContextKeys, Enctype, OpenJob, Role, VerifyJob, open_many, verify_many};

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, cut], data)) = data.split_first_chunk::<2>() else { return };
    let enctype = Enctype::ALL[usize::from(choice & 3)];
    let key = [choice; 32];
    let keys = |role| {
        ContextKeys::new(enctype, &key[..enctype.key_len()], role, choice & 4 != 0)
            .expect("the enctype's length")
    };
    let (initiator, acceptor) = (keys(Role::Initiator), keys(Role::Acceptor));

    // The token as a whole, and in a batch with its two halves.
    let middle = data.len() * usize::from(cut) / 256;
    let mut whole = data.to_vec();
    let (mut first, mut second) = (data[..middle].to_vec(), data[middle..].to_vec());
    let _ = acceptor.open_any(&mut whole.clone());
    let mut jobs = [
        OpenJob::new(&acceptor, &mut whole),
        OpenJob::new(&acceptor, &mut first),
        OpenJob::new(&initiator, &mut second),
    ];
    open_many(&mut jobs);
    for job in &jobs {
        assert!(job.result.is_err(), "a forged token was accepted");
    }
    let parts = [&data[..middle]];
    let mut jobs = [
        VerifyJob::new(&acceptor, &parts, &data[middle..]),
        VerifyJob::new(&initiator, &parts, data),
    ];
    verify_many(&mut jobs);
    for job in &jobs {
        assert!(job.result.is_err(), "a forged checksum was accepted");
    }

    // A genuine token that is only rotated (RRC) opens to the same body at the right place.
    let mut token = vec![0; initiator.header_len()];
    token.extend_from_slice(data);
    token.resize(token.len() + initiator.trailer_len(), 0);
    initiator.seal(u64::from(cut), [cut; 16], &mut token).expect("there is room");
    let by = data.len().wrapping_mul(31) % (token.len() - 16) % 65_536;
    token[16..].rotate_right(by);
    token[6..8].copy_from_slice(&(by as u16).to_be_bytes());
    let range = acceptor.open(&mut token).expect("a token that we made");
    assert_eq!(&token[range], data);
    let mic = initiator.mic(1, &[data]);
    assert_eq!(acceptor.verify_mic(&[&data[..middle], &data[middle..]], &mic), Ok(1));
});
