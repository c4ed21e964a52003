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
    /// The longest lease of this head and of those in `before`. Version 1 had none.
    pub(crate) lease_ms: Option<u64>,
}

impl LeaseRecord {
    pub(crate) fn to_text(&self) -> String {
        let tenure = match self.tenure {
            Tenure::Claimed => "claimed",
            Tenure::Active => "active",
            Tenure::Released => "released",
        };
        let before =
            if self.before.is_empty() { NO_HEAD.to_owned() } else { self.before.join(",") };
        let (version, lease) = match self.lease_ms {
            None => (1, String::new()),
            Some(lease_ms) => (2, format!("lease {lease_ms}\n")),
        };
        format!(
            "{FIRST_WORDS}{version}\nepoch {}\nhead {}\nprocess {:016x}\nrenewal {}\ntenure {tenure}\nbefore {before}\n{lease}",
            self.epoch, self.head, self.process, self.renewal
        )
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let version = lines.next()?.strip_prefix(FIRST_WORDS)?;
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
            names => names
                .split(',')
                .map(|name| is_head_name(name).then(|| name.to_owned()))
                .collect::<Option<_>>()?,
        };
        let lease_ms = match version {
            "1" => None,
            _ => Some(field("lease")?.parse().ok()?),
        };
        let record = LeaseRecord { epoch, head, process, renewal, tenure, before, lease_ms };
        // The text has one form: no other version, no sign, no leading zeros.
        let is_in_range = (1..=NUMBER_MAX).contains(&epoch.0) && renewal <= NUMBER_MAX;
        let is_in_range =
            is_in_range && lease_ms.is_none_or(|lease_ms| (1..=LEASE_MS_MAX).contains(&lease_ms));
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
/// The longest value of `--state-lease`.
const LEASE_MS_MAX: u64 = 3_600_000;

const FIRST_WORDS: &str = "vouch export lease ";

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn record_round_trips_and_cut_text_is_refused() {
        for tenure in [Tenure::Claimed, Tenure::Active, Tenure::Released] {
            for before in [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b-2".to_owned()]] {
                for lease_ms in [None, Some(1), Some(LEASE_MS_MAX)] {
                    let (head, before) = ("nfs-1.example".into(), before.clone());
                    let record = LeaseRecord {
                        epoch: Epoch(7),
                        head,
                        process: 0xab,
                        renewal: 12,
                        tenure,
                        before,
                        lease_ms,
                    };
                    let text = record.to_text();
                    assert_eq!(LeaseRecord::parse(&text), Some(record));
                    for len in 0..text.len() {
                        assert_eq!(LeaseRecord::parse(&text[..len]), None, "{len}");
                    }
                    assert_eq!(LeaseRecord::parse(&format!("{text}\n")), None);
                }
            }
        }
        let golden = [
            include_str!("../../tests/golden/lease-record-1.hex"),
            include_str!("../../tests/golden/lease-record-2.hex"),
        ];
        for (golden, lease_ms) in golden.into_iter().zip([None, Some(5000)]) {
            let golden =
                HEXLOWER.decode(golden.split_whitespace().collect::<String>().as_bytes()).unwrap();
            let (head, before, tenure) = ("b".to_owned(), vec!["a".to_owned()], Tenure::Claimed);
            let record = LeaseRecord {
                epoch: Epoch(2),
                head,
                process: 1,
                renewal: 0,
                tenure,
                before,
                lease_ms,
            };
            assert_eq!(record.to_text().as_bytes(), golden);
        }
    }

    #[test]
    fn number_in_another_form_or_out_of_range_is_refused() {
        let text = |epoch: &str, process: &str, renewal: &str| {
            format!(
                "{FIRST_WORDS}1\nepoch {epoch}\nhead a\nprocess {process}\nrenewal {renewal}\ntenure active\nbefore -\n"
            )
        };
        let process = "00000000000000ab";
        assert!(LeaseRecord::parse(&text("7", process, "0")).is_some());
        assert!(
            LeaseRecord::parse(&text("9223372036854775807", process, "9223372036854775807"))
                .is_some()
        );
        for number in [
            "",
            "+7",
            "07",
            "-7",
            "7 ",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
        ] {
            assert_eq!(LeaseRecord::parse(&text(number, process, "0")), None, "epoch {number:?}");
            assert_eq!(LeaseRecord::parse(&text("7", process, number)), None, "renewal {number:?}");
        }
        assert_eq!(LeaseRecord::parse(&text("0", process, "0")), None);
        for number in ["ab", "+0000000000000ab", "00000000000000AB", "000000000000000ab"] {
            assert_eq!(LeaseRecord::parse(&text("7", number, "0")), None, "process {number:?}");
        }
        let with_lease = |version: &str, lease: &str| {
            let rest = text("7", process, "0").replacen('1', version, 1);
            LeaseRecord::parse(&format!("{rest}lease {lease}\n"))
        };
        assert_eq!(with_lease("2", "5000").map(|record| record.lease_ms), Some(Some(5000)));
        for (version, lease) in [
            ("1", "5000"),
            ("3", "5000"),
            ("02", "5000"),
            ("2", "0"),
            ("2", "05"),
            ("2", "3600001"),
            ("2", ""),
        ] {
            assert_eq!(with_lease(version, lease), None, "version {version:?}, lease {lease:?}");
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
