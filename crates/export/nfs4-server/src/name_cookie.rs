//! Cookies depend on the name alone, so that a listing survives reloads and restarts.

/// At least 3 (RFC 8881 §18.23.3), and below 2^63, because some clients store cookies signed. A
/// page must not end between names with one cookie.
pub(crate) fn of_name(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let word =
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"));
    (word >> 1).max(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_depends_on_name_and_is_in_range() {
        for number in 0..1000u32 {
            let cookie = of_name(&number.to_be_bytes());
            assert!((3..1 << 63).contains(&cookie));
            assert_eq!(cookie, of_name(&number.to_be_bytes()));
        }
        assert_eq!(of_name(b"export"), GOLDEN);
    }

    const GOLDEN: u64 = 1_886_862_182_193_307_643;
}
