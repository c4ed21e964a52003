pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(SHAPE.into()),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).ok_or_else(|| SHAPE.into())
}

/// Not so short that each pack holds only a few frames.
pub(crate) fn parse_pack_len(text: &str) -> Result<u32, String> {
    let len = u32::try_from(parse(text)?).ok().filter(|len| (256 << 10..=1 << 30).contains(len));
    len.ok_or_else(|| "a pack has 256K to 1G".into())
}

const SHAPE: &str = "write a number of bytes, or with K, M, G or T: 256M, 10G";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_powers_of_1024() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("64K"), Ok(65_536));
        assert_eq!(parse("10GiB"), Ok(10 << 30));
        assert!(parse("1X").is_err());
        assert!(parse("99999999999T").is_err());
        assert!(parse("").is_err());
    }
}
