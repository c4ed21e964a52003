//! A line of numbers, the exports in `deny`, an empty line, the rules.

use vouch_audit::trail::Retention;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(super) strictness: u8,
    /// Higher means later durability.
    pub(super) lateness: (u8, u128),
    pub(super) deny: Vec<String>,
    pub(super) rules: Option<Vec<u8>>,
    pub(super) kept: SavedConfiguration,
    pub(super) keys: Option<Keys>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedConfiguration {
    pub(super) seal_ns: u64,
    pub(super) retention: Retention,
}

/// Inode number, length, and ctime in seconds and nanoseconds. The device number may change at
/// boot.
pub(super) type Stamp = (u64, u64, i64, i64);

/// No stamp if the file did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub(super) path: Vec<u8>,
    pub(super) stamp: Option<Stamp>,
}

impl SavedConfiguration {
    pub(super) fn write(&self) -> String {
        let or_none = |number: Option<u64>| {
            number.map_or_else(|| "-".to_owned(), |number| number.to_string())
        };
        let Retention { age_ns_max, len_max, age_ns_min } = self.retention;
        [self.seal_ns.to_string(), or_none(age_ns_max), or_none(len_max), age_ns_min.to_string()]
            .join(" ")
    }

    pub(super) fn read<'a>(
        words: &mut impl Iterator<Item = &'a str>,
    ) -> Option<SavedConfiguration> {
        let seal_ns = words.next()?.parse().ok()?;
        let mut or_none = || match words.next()? {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let (age_ns_max, len_max) = (or_none()?, or_none()?);
        Some(SavedConfiguration {
            seal_ns,
            retention: Retention { age_ns_max, len_max, age_ns_min: words.next()?.parse().ok()? },
        })
    }
}

impl Configuration {
    pub(crate) fn parse(text: &[u8]) -> Option<Configuration> {
        let (head, rest) = cut(text, b"\n")?;
        let (deny, rest) = cut(rest, b"\n\n")?;
        let (head, deny) = (std::str::from_utf8(head).ok()?, std::str::from_utf8(deny).ok()?);
        let mut words = head.split(' ');
        let mut number = || words.next()?.parse::<u128>().ok();
        let (strictness, kind, late, has_rules) = (number()?, number()?, number()?, number()?);
        Some(Configuration {
            strictness: u8::try_from(strictness).ok().filter(|strictness| *strictness < 3)?,
            lateness: (u8::try_from(kind).ok()?, late),
            deny: deny.lines().map(str::to_owned).collect(),
            rules: (has_rules == 1).then(|| rest.to_owned()),
            kept: SavedConfiguration::read(&mut words)?,
            // Earlier versions wrote no keys.
            keys: Keys::read(&mut words),
        })
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        let (kind, late) = self.lateness;
        let rules = self.rules.as_deref().unwrap_or_default();
        let mut head = format!(
            "{} {kind} {late} {} {}",
            self.strictness,
            u8::from(self.rules.is_some()),
            self.kept.write()
        );
        if let Some(keys) = &self.keys {
            head = [head, keys.write()].join(" ");
        }
        [format!("{head}\n{}\n\n", self.deny.join("\n")).as_bytes(), rules].concat()
    }
}

fn cut<'t>(text: &'t [u8], at: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let begin = text.windows(at.len()).position(|part| part == at)?;
    Some((&text[..begin], &text[begin + at.len()..]))
}

impl Keys {
    pub(super) fn write(&self) -> String {
        let path = data_encoding::HEXLOWER.encode(&self.path);
        match self.stamp {
            Some((inode, len, seconds, nanos)) => format!("{path} {inode} {len} {seconds} {nanos}"),
            None => path,
        }
    }

    pub(super) fn read<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Keys> {
        let path = data_encoding::HEXLOWER.decode(words.next()?.as_bytes()).ok()?;
        let stamp = words.next().map(|inode| {
            let mut rest = || words.next()?.parse().ok();
            Some((inode.parse().ok()?, u64::try_from(rest()?).ok()?, rest()?, rest()?))
        });
        match stamp {
            Some(None) => None,
            stamp => Some(Keys { path, stamp: stamp.flatten() }),
        }
    }
}
