//! Removes secrets from text: keeps only known settings of a configuration, and removes whatever
//! looks like a secret elsewhere.

use std::collections::BTreeSet;

pub(super) struct Redactor {
    options: BTreeSet<String>,
}

impl Redactor {
    pub(super) const fn new(options: BTreeSet<String>) -> Self {
        Self { options }
    }

    /// Copies sections and options of this program. Comments, unknown keys and all other lines may
    /// hold anything.
    pub(super) fn configuration(&self, text: &str) -> String {
        let mut lines = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            lines.push(match line.split_once('=') {
                _ if line.starts_with('#') => continue,
                _ if is_section(line) => line.to_owned(),
                Some((key, value)) if self.is_known(key.trim()) => {
                    format!("{} = {}", key.trim(), self.value(value.trim()))
                }
                Some((key, _)) if is_plain_word(key.trim()) => {
                    format!("{} = {LEFT_OUT}", key.trim())
                }
                _ => LEFT_OUT.to_owned(),
            });
        }
        lines.join("\n")
    }

    pub(super) fn command_line(&self, words: &[String]) -> String {
        let mut shown = Vec::new();
        let mut is_secret = false;
        for word in words {
            shown.push(if is_secret { LEFT_OUT.to_owned() } else { self.value(word) });
            is_secret = word.starts_with("--") && !word.contains('=') && is_secret_name(word);
        }
        shown.join(" ")
    }

    /// Removes user names, passwords and queries of URLs, values of names that look like secrets,
    /// and keys in PEM form or of well-known services.
    pub(super) fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut in_key = false;
        for line in text.lines() {
            let begins = line.contains("-----BEGIN");
            if begins || in_key {
                in_key = !line.contains("-----END");
                if begins {
                    out.push_str(LEFT_OUT);
                    out.push('\n');
                }
                continue;
            }
            out.push_str(&Self::line(line));
            out.push('\n');
        }
        out
    }

    fn line(line: &str) -> String {
        let mut shown = String::with_capacity(line.len());
        let mut hides_next = false;
        for word in line.split_inclusive([' ', '\t', ',']) {
            let bare = word.trim_end_matches([' ', '\t', ',']);
            let end = &word[bare.len()..];
            let (hidden, is_label) = Self::word(bare);
            match hides_next && !bare.is_empty() {
                true => shown.push_str(LEFT_OUT),
                false => shown.push_str(&hidden),
            }
            shown.push_str(end);
            hides_next = is_label || hides_next && bare.is_empty();
        }
        shown
    }

    /// The word without its secrets, and true if the next word is a secret.
    fn word(word: &str) -> (String, bool) {
        if is_key_of_service(word) {
            return (LEFT_OUT.to_owned(), false);
        }
        if let Some(at) = word.find("://") {
            return (url(word, at), false);
        }
        let name_end = word.find(['=', ':']).filter(|at| is_secret_name(&word[..*at]));
        match name_end {
            Some(at) if word[at + 1..].trim_matches(['"', '\'']).is_empty() => {
                (word.to_owned(), true)
            }
            Some(at) => (format!("{}{LEFT_OUT}", &word[..=at]), false),
            None => (
                word.to_owned(),
                word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic"),
            ),
        }
    }

    fn value(&self, value: &str) -> String {
        self.text(value).trim_end().to_owned()
    }

    /// Options, as `cache-quota`, `cache_quota` or `VOUCH_CACHE_QUOTA`, and the units' variables.
    fn is_known(&self, key: &str) -> bool {
        let name = key.trim_matches('"').to_ascii_lowercase().replace('_', "-");
        let name = name.strip_prefix("vouch-").unwrap_or(&name);
        let of_units = ["tree", "source", "location", "name", "dir"].contains(&name)
            || name.ends_with("-options");
        (of_units || self.options.contains(name)) && !is_secret_name(name)
    }
}

/// `[section]` or `[[section]]`, of names and dots; quoted names are trees and paths.
fn is_section(line: &str) -> bool {
    line.starts_with('[')
        && line.ends_with(']')
        && !line.contains(['=', ' '])
        && !line.contains("://")
}

fn is_plain_word(text: &str) -> bool {
    text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Names of files that hold secrets are no secrets: `keytab`, `passphrase-file`.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_file = ["keytab", "-file", "_file", "audit-key", "filehandle.key"]
        .iter()
        .any(|end| name.ends_with(end));
    !is_file && SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Removes user, password and query. The word may go on behind the URL.
fn url(word: &str, at: usize) -> String {
    let (scheme, rest) = word.split_at(at + 3);
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    // A password may hold slashes that were not escaped: then the last @ ends it.
    let (authority, path) = match (authority.rfind('@'), rest.rfind('@')) {
        (Some(user_end), _) => (format!("{LEFT_OUT}@{}", &authority[user_end + 1..]), path),
        (None, Some(user_end)) => (format!("{LEFT_OUT}@"), &rest[user_end + 1..]),
        (None, None) => (authority.to_owned(), path),
    };
    let path = path
        .split_once(['?', '#'])
        .map_or_else(|| path.to_owned(), |(path, _)| format!("{path}?{LEFT_OUT}"));
    format!("{scheme}{authority}{path}")
}

/// Access keys of S3 (20 characters from AKIA or ASIA), seeds of NATS (58 from S), and tokens of
/// JSON (eyJ).
fn is_key_of_service(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_upper = word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let is_s3 =
        word.len() == 20 && is_upper && (word.starts_with("AKIA") || word.starts_with("ASIA"));
    let is_nats = word.len() == 58 && is_upper && word.starts_with('S');
    is_s3 || is_nats || word.len() > 40 && word.starts_with("eyJ") && word.contains('.')
}

const SECRET_NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
    "api-key",
    "api_key",
    "access-key",
    "access_key",
    "private",
    "authorization",
];

const LEFT_OUT: &str = "(left out)";

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor() -> Redactor {
        Redactor::new(["cache-quota", "proxy", "replica", "quiet"].map(str::to_owned).into())
    }

    #[test]
    fn text_loses_secrets_and_nothing_else() {
        let cases = [
            (
                "proxy http://user:hunter2@proxy:3128/x failed",
                "proxy http://(left out)@proxy:3128/x failed",
            ),
            ("get https://h/db?X-Amz-Signature=hunter2", "get https://h/db?(left out)"),
            ("at http://u:hun/ter2@h:1/db", "at http://(left out)@h:1/db"),
            ("AWS_SECRET_ACCESS_KEY=hunter2 x", "AWS_SECRET_ACCESS_KEY=(left out) x"),
            ("password: hunter2", "password: (left out)"),
            ("\"token\": \"hunter2\", \"a\": 1", "\"token\": (left out), \"a\": 1"),
            ("Authorization: Bearer hunter2", "Authorization: (left out) (left out)"),
            ("key AKIAABCDEFGHIJKLMNOP!", "key (left out)"),
            ("keytab=/etc/krb5.keytab mount /a:b", "keytab=/etc/krb5.keytab mount /a:b"),
            (
                "@pub.example.org,HOSTID 192.0.2.1:4340: refused",
                "@pub.example.org,HOSTID 192.0.2.1:4340: refused",
            ),
        ];
        for (before, after) in cases {
            assert_eq!(redactor().text(before), format!("{after}\n"), "{before}");
        }
        assert_eq!(
            redactor().text("a\n-----BEGIN KEY-----\nhunter2\n-----END KEY-----\nb"),
            "a\n(left out)\nb\n"
        );
    }

    #[test]
    fn configuration_keeps_known_options_only() {
        let text = "# hunter1\n[mount.\"/software\"]\ncache-quota = \"20G\"\nproxy = [\"http://u:hunter2@p:1\"]\nsalt = \"hunter3\"\n\
                    note = \"\"\"\nhunter4\n\"\"\"\nVOUCH_MOUNT_OPTIONS=--replica http://u:hunter5@h/db --quiet\nAWS_SECRET_ACCESS_KEY=hunter6\n";
        let kept = redactor().configuration(text);
        assert!(!kept.contains("hunter"), "{kept}");
        for expected in
            ["[mount.\"/software\"]", "cache-quota = \"20G\"", "salt = (left out)", "@h/db --quiet"]
        {
            assert!(kept.contains(expected), "{expected} is not in {kept}");
        }
    }

    #[test]
    fn command_line_hides_the_value_of_a_secret_option() {
        let words = ["vouch", "get", "--api-token", "hunter2", "--keytab", "/k"].map(str::to_owned);
        assert_eq!(redactor().command_line(&words), "vouch get --api-token (left out) --keytab /k");
    }
}
