//! Names of jobs, nodes and users, checked once. None of them can leave a path, a principal or a
//! line of a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no such name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: use 1 to {len_max} letters, digits and {others}")]
pub struct NameError {
    text: String,
    what: &'static str,
    len_max: usize,
    others: &'static str,
}

macro_rules! names {
    ($($(#[$doc:meta])* $type:ident $what:literal $len_max:literal $others:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// # Errors
            /// If the text is empty, too long, or has other characters.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                let is_good = |c: char| c.is_ascii_alphanumeric() || $others.contains(c);
                let is_name = (1..=$len_max).contains(&text.len()) && text.chars().all(is_good) && !text.starts_with(['.', '-']);
                match is_name {
                    true => Ok(Self(text.to_owned())),
                    false => {
                        let text = text.chars().take(80).collect();
                        Err(NameError { text, what: $what, len_max: $len_max, others: $others })
                    }
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names! {
    /// The scheduler's number of a job: `4711`, `4711_3`, `4711[3].server`.
    JobId "job" 64 "_.-+[]";
    /// A node as the scheduler names it.
    NodeName "node" 253 "_.-";
    /// A user of the cluster, as the name service names it: `alice`, `AD\\alice`, `alice@ad.example.org`.
    UserName "user" 128 "_.-\\+@";
}

impl UserName {
    /// The domain, if the name has one, and the name in the domain. None if a part is empty or
    /// has a separator itself.
    pub(crate) fn parts(&self) -> Option<(Option<&str>, &str)> {
        let (domain, name) = match self.0.split_once('@') {
            Some((name, domain)) => (Some(domain), name),
            // Separators of winbind: the usual one, and the usual other one.
            None => match self.0.split_once(['\\', '+']) {
                Some((domain, name)) => (Some(domain), name),
                None => (None, self.0.as_str()),
            },
        };
        let is_part = |part: &str| !part.is_empty() && !part.contains(['\\', '+', '@']);
        (is_part(name) && domain.is_none_or(is_part)).then_some((domain, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_separators() {
        for good in ["4711", "4711_3", "12[7].server"] {
            assert_eq!(JobId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a b", "a\n", "..", "-x", &"9".repeat(65)] {
            assert!(JobId::parse(bad).is_err(), "{bad}");
        }
        for bad in ["alice/admin", "../x", "jürgen"] {
            assert!(UserName::parse(bad).is_err(), "{bad}");
        }
        let parts = |text: &str| {
            UserName::parse(text)
                .unwrap()
                .parts()
                .map(|(domain, name)| (domain.map(str::to_owned), name.to_owned()))
        };
        assert_eq!(parts("alice"), Some((None, "alice".into())));
        for name in ["AD\\alice", "AD+alice", "alice@AD"] {
            assert_eq!(parts(name), Some((Some("AD".into()), "alice".into())), "{name}");
        }
        for bad in ["\\alice", "alice@", "a@b@c", "A\\b@c", "A\\b\\c"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        assert!(serde_json::from_str::<NodeName>("\"a/b\"").is_err());
    }
}
