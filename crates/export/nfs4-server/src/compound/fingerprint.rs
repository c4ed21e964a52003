//! Distinguishes a retry from another call with the same number. Contains the flavour: a cached
//! reply is sent without a new check. Not cryptographic: a forged collision costs only the forger.

use std::hash::{Hash as _, Hasher};

use crate::{Flavour, Principal};

const LEN_MAX: usize = 512;

pub(crate) fn of(principal: &Principal, flavour: Flavour, operations: u32, body: &[u8]) -> u64 {
    let mut hasher =
        FoldHasher(0x9e37_79b9_7f4a_7c15 ^ (u64::from(operations) | (flavour as u64) << 32));
    match principal {
        Principal::None => hasher.add(1),
        Principal::Sys { uid, .. } => hasher.add(2 | u64::from(*uid) << 32),
        Principal::Gss { name } | Principal::Certificate { name } => name.hash(&mut hasher),
    }
    hasher.add(body.len() as u64);
    hasher.write(&body[..body.len().min(LEN_MAX)]);
    hasher.finish()
}

struct FoldHasher(u64);

impl FoldHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(0x8bb8_4b93_962e_acc9_u64);
        self.0 = (wide as u64) ^ (wide >> 64) as u64 ^ 0x2d35_8dcc_aa6c_78a5;
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_call_changes_the_fingerprint() {
        let sys = |uid| Principal::Sys { uid, gid: 0, gids: [].into() };
        let body = [7u8; 100];
        let sys_of = |uid, operations, body: &[u8]| of(&sys(uid), Flavour::Sys, operations, body);
        let base = sys_of(1, 3, &body);
        assert_eq!(base, sys_of(1, 3, &body));
        assert_ne!(base, sys_of(2, 3, &body));
        assert_ne!(base, sys_of(1, 4, &body));
        assert_ne!(base, sys_of(1, 3, &body[..96]));
        let gss = Principal::Gss { name: "alice@R".into() };
        let proven = [Flavour::Krb5, Flavour::Krb5i, Flavour::Krb5p]
            .map(|flavour| of(&gss, flavour, 3, &body));
        assert!(proven[0] != proven[1] && proven[0] != proven[2] && proven[1] != proven[2]);
        for at in 0..body.len() {
            let mut other = body;
            other[at] ^= 1;
            assert_ne!(base, sys_of(1, 3, &other), "{at}");
        }
    }
}
