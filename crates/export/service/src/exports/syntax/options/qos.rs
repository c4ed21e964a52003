//! The value of `qos=`: `ops:RATE+bytes:RATE+all-ops:RATE+all-bytes:RATE+burst:TIME+weight:N+by:WHOM`.

use vouch_nfs4_server::{Qos, Rates};

/// `None`: an unknown or repeated limit, no limit, or a value out of range.
pub(super) fn parse(list: &str) -> Option<Qos> {
    let mut qos = Qos {
        by_principal: false,
        client: Rates::default(),
        all: Rates::default(),
        burst_ms: BURST_MS_DEFAULT,
        weight: 1,
    };
    let mut seen = Vec::new();
    for limit in list.split('+') {
        let (name, value) = limit.split_once(':')?;
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        match name {
            "ops" => qos.client.ops = Some(rate(value, OPS_MIN)?),
            "bytes" => qos.client.bytes = Some(rate(value, BYTES_MIN)?),
            "all-ops" => qos.all.ops = Some(rate(value, OPS_MIN)?),
            "all-bytes" => qos.all.bytes = Some(rate(value, BYTES_MIN)?),
            "burst" => qos.burst_ms = burst(value)?,
            "weight" => {
                qos.weight = value.parse().ok().filter(|weight| (1..=100).contains(weight))?
            }
            "by" => {
                qos.by_principal = match value {
                    "address" => false,
                    "principal" => true,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(qos)
}

pub(super) fn text(qos: &Qos) -> String {
    let rate = |name: &str, rate: Option<u64>| rate.map(|rate| format!("{name}:{rate}"));
    let limits = [
        rate("ops", qos.client.ops),
        rate("bytes", qos.client.bytes),
        rate("all-ops", qos.all.ops),
        rate("all-bytes", qos.all.bytes),
        Some(format!("burst:{}ms", qos.burst_ms)),
        Some(format!("weight:{}", qos.weight)),
        Some(format!("by:{}", if qos.by_principal { "principal" } else { "address" })),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join("+")
}

fn rate(value: &str, min: u64) -> Option<u64> {
    super::size::parse(value).filter(|rate| (min..=RATE_MAX).contains(rate))
}

fn burst(value: &str) -> Option<u32> {
    let (digits, factor) = match value.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (value.strip_suffix('s')?, 1000),
    };
    let burst_ms = digits.parse::<u32>().ok()?.checked_mul(factor)?;
    Some(burst_ms).filter(|burst| (1..=BURST_MS_MAX).contains(burst))
}

const BURST_MS_DEFAULT: u32 = 1000;
const BURST_MS_MAX: u32 = 60_000;
/// A client renews its lease by calls, so it can always make some.
const OPS_MIN: u64 = 10;
/// One message has up to 1 MiB.
const BYTES_MIN: u64 = 1 << 20;
/// The cost of a call in nanoseconds stays above zero for lengths of messages.
const RATE_MAX: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_and_shown() {
        let qos = parse("ops:2k+bytes:100M+all-bytes:1G+burst:2s+weight:4+by:principal").unwrap();
        assert_eq!(
            text(&qos),
            "ops:2048+bytes:104857600+all-bytes:1073741824+burst:2000ms+weight:4+by:principal"
        );
        assert_eq!(parse(&text(&qos)), Some(qos));
        assert_eq!(text(&parse("weight:2").unwrap()), "burst:1000ms+weight:2+by:address");
    }

    #[test]
    fn wrong_limits_are_refused() {
        for wrong in [
            "",
            "ops",
            "ops:",
            "ops:9",
            "ops:x",
            "ops:100+ops:200",
            "bytes:1k",
            "bytes:99999999999G",
            "burst:0s",
            "burst:61s",
            "burst:5",
            "weight:0",
            "weight:101",
            "by:user",
            "speed:1",
            "ops:é",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
