//! Numbers with the suffixes k, M, G and T, which are powers of 1024.

/// `None`: not a number, or beyond 64 bits.
pub(super) fn parse(value: &str) -> Option<u64> {
    let factor = match value.bytes().last()? {
        b'k' | b'K' => 1 << 10,
        b'm' | b'M' => 1 << 20,
        b'g' | b'G' => 1 << 30,
        b't' | b'T' => 1 << 40,
        _ => 1,
    };
    let digits = if factor == 1 { value } else { &value[..value.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        let sizes = [("7", 7), ("2k", 2 << 10), ("3M", 3 << 20), ("4G", 4 << 30), ("5t", 5 << 40)];
        sizes.iter().for_each(|(text, size)| assert_eq!(parse(text), Some(*size), "{text}"));
        for wrong in ["", "k", "1kk", "-1", "1.5G", "1\u{e9}", "99999999T"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
