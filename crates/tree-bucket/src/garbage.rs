//! With times. Stored as the object `garbage`.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Garbage {
    /// Seconds since 1970 when a collection first found the object unnamed.
    since: BTreeMap<String, u64>,
}

impl Garbage {
    /// Skips unreadable lines: their objects wait again.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let entries = text.lines().filter_map(|line| {
            let (since, name) = line.split_once(' ')?;
            let is_name = !name.chars().any(char::is_control);
            is_name.then_some((name.to_owned(), since.parse().ok()?))
        });
        Self { since: entries.collect() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.since.iter().map(|(name, since)| format!("{since} {name}\n")).collect::<String>().into_bytes()
    }

    pub(crate) fn next(&self, present: &[String], named: &HashSet<String>, now_s: u64) -> Self {
        let unnamed = present.iter().filter(|name| !named.contains(*name));
        // A future time comes from a wrong clock.
        let since = |name: &String| self.since.get(name).copied().filter(|since| *since <= now_s).unwrap_or(now_s);
        Self { since: unnamed.map(|name| (name.clone(), since(name))).collect() }
    }

    pub(crate) fn expired(&self, now_s: u64, grace: Duration) -> Vec<String> {
        let is_over = |since: u64| now_s.saturating_sub(since) >= grace.as_secs();
        self.since.iter().filter(|(_, since)| is_over(**since)).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_expire_after_their_grace_period() {
        let (present, named) = (["a".to_owned(), "b".to_owned(), "c".to_owned()], HashSet::from(["a".to_owned()]));
        let first = Garbage::default().next(&present, &named, 100);
        assert_eq!(first.expired(100, Duration::from_secs(10)), [""; 0]);
        assert_eq!(first.expired(100, Duration::ZERO), ["b", "c"]);
        let second = Garbage::parse(&first.to_bytes()).next(&present[..2], &named, 110);
        assert_eq!(second.expired(110, Duration::from_secs(10)), ["b"]);
        let third = second.next(&present, &HashSet::from(["b".to_owned()]), 50);
        assert_eq!(third.expired(59, Duration::from_secs(10)), [""; 0]);
        assert_eq!(third.expired(60, Duration::from_secs(10)), ["a", "c"]);
        assert_eq!(Garbage::parse(b"x y\n\xff\n7 d\n").since.len(), 1);
    }
}
