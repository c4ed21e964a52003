//! The record of an epoch (docs/formats/lease.md): text, replaced as a whole at each renewal.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(pub(crate) u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// The head waits for the end of the head before it.
    Claimed,
    /// The head serves. All heads of earlier epochs have ended.
    Active,
    /// The head has stopped in order and will not serve in this epoch again.
    Released,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) epoch: Epoch,
    pub(crate) head: String,
    /// Random; tells two processes of one head apart.
    pub(crate) process: u64,
    pub(crate) renewal: u64,
    pub(crate) tenure: Tenure,
    /// Heads of earlier epochs that may still serve. None for a head that serves.
    pub(crate) before: Vec<String>,
}

impl LeaseRecord {
    pub(crate) fn to_text(&self) -> String {
        let tenure = match self.tenure {
            Tenure::Claimed => "claimed",
            Tenure::Active => "active",
            Tenure::Released => "released",
        };
        let before = if self.before.is_empty() { NO_HEAD.to_owned() } else { self.before.join(",") };
        format!(
            "{FIRST_LINE}\nepoch {}\nhead {}\nprocess {:016x}\nrenewal {}\ntenure {tenure}\nbefore {before}\n",
            self.epoch, self.head, self.process, self.renewal
        )
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let epoch = Epoch(field("epoch")?.parse().ok()?);
        let head = field("head").filter(|head| is_head_name(head))?.to_owned();
        let process = u64::from_str_radix(field("process")?, 16).ok()?;
        let renewal = field("renewal")?.parse().ok()?;
        let tenure = match field("tenure")? {
            "claimed" => Tenure::Claimed,
            "active" => Tenure::Active,
            "released" => Tenure::Released,
            _ => return None,
        };
        let before = match field("before")? {
            NO_HEAD => Vec::new(),
            names => names.split(',').map(|name| is_head_name(name).then(|| name.to_owned())).collect::<Option<_>>()?,
        };
        let record = LeaseRecord { epoch, head, process, renewal, tenure, before };
        // Numbers have one form: no sign, no leading zeros.
        let is_in_range = (1..=NUMBER_MAX).contains(&epoch.0) && renewal <= NUMBER_MAX;
        (lines.next().is_none() && is_in_range && record.to_text() == text).then_some(record)
    }
}

/// It becomes part of file names.
pub(crate) fn is_head_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with(['.', '-'])
}

/// Of epochs and renewals. A takeover each millisecond reaches it in 292 million years.
const NUMBER_MAX: u64 = i64::MAX as u64;

const NO_HEAD: &str = "-";
const FIRST_LINE: &str = "vouch export lease 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_and_cut_text_is_refused() {
        for tenure in [Tenure::Claimed, Tenure::Active, Tenure::Released] {
            for before in [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b-2".to_owned()]] {
                let record = LeaseRecord { epoch: Epoch(7), head: "nfs-1.example".into(), process: 0xab, renewal: 12, tenure, before };
                let text = record.to_text();
                assert_eq!(LeaseRecord::parse(&text), Some(record));
                for len in 0..text.len() {
                    assert_eq!(LeaseRecord::parse(&text[..len]), None, "{len}");
                }
                assert_eq!(LeaseRecord::parse(&format!("{text}\n")), None);
            }
        }
        let golden: String = include_str!("../../tests/golden/lease-record.hex").split_whitespace().collect();
        let golden = data_encoding::HEXLOWER.decode(golden.as_bytes()).unwrap();
        let (head, before, tenure) = ("b".to_owned(), vec!["a".to_owned()], Tenure::Claimed);
        assert_eq!(LeaseRecord { epoch: Epoch(2), head, process: 1, renewal: 0, tenure, before }.to_text().as_bytes(), golden);
    }

    #[test]
    fn number_in_another_form_or_out_of_range_is_refused() {
        let text = |epoch: &str, process: &str, renewal: &str| {
            format!("{FIRST_LINE}\nepoch {epoch}\nhead a\nprocess {process}\nrenewal {renewal}\ntenure active\nbefore -\n")
        };
        let process = "00000000000000ab";
        assert!(LeaseRecord::parse(&text("7", process, "0")).is_some());
        assert!(LeaseRecord::parse(&text("9223372036854775807", process, "9223372036854775807")).is_some());
        for number in ["", "+7", "07", "-7", "7 ", "9223372036854775808", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(LeaseRecord::parse(&text(number, process, "0")), None, "epoch {number:?}");
            assert_eq!(LeaseRecord::parse(&text("7", process, number)), None, "renewal {number:?}");
        }
        assert_eq!(LeaseRecord::parse(&text("0", process, "0")), None);
        for number in ["ab", "+0000000000000ab", "00000000000000AB", "000000000000000ab"] {
            assert_eq!(LeaseRecord::parse(&text("7", number, "0")), None, "process {number:?}");
        }
    }

    #[test]
    fn head_name_cannot_leave_its_directory() {
        let long = "x".repeat(65);
        for name in ["", ".", "..", ".x", "-", "a/b", "a b", "a\nb", "ä", &long] {
            assert!(!is_head_name(name), "{name}");
        }
        assert!(is_head_name("nfs1") && is_head_name("nfs-1.example.org"));
    }
}
