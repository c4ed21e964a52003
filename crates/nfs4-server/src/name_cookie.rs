//! Cookies of lists that are had whole each time: the directories of the pseudo file system, the
//! names of extended attributes. A name's cookie is made of the name alone, and the list goes by
//! cookies, so that one in progress neither skips nor repeats what stays while other names come and
//! go, also over a reload and a restart.

/// The cookie of a name: at least 3 (RFC 8881, section 18.23.3: 0 to 2 are never given out), and
/// below 2^63, as some clients keep it with a sign.
///
/// Two names may have one, though nobody meets them by chance: who ends a page must not end it
/// between them.
pub(crate) fn of_name(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let word = u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"));
    (word >> 1).max(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_of_the_name_and_in_range() {
        for number in 0..1000u32 {
            let cookie = of_name(&number.to_be_bytes());
            assert!((3..1 << 63).contains(&cookie));
            assert_eq!(cookie, of_name(&number.to_be_bytes()));
        }
        // What was given out before a restart or an upgrade means the same after it.
        assert_eq!(of_name(b"export"), GOLDEN);
    }

    const GOLDEN: u64 = 1_886_862_182_193_307_643;
}
