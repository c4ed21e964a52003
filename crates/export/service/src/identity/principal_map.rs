//! Parser of the principal map (docs/formats/principal-map.md).

use std::collections::HashMap;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrincipalMap {
    lines: Vec<(Box<str>, Account)>,
    exact: HashMap<Box<str>, usize>,
    patterns: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    User(Box<str>),
    Squash,
    Refuse,
    Local,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapFault {
    line: usize,
    what: String,
    cure: &'static str,
}

impl fmt::Display for MapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.cure)
    }
}

impl PrincipalMap {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Vec<MapFault>> {
        let mut map = PrincipalMap::default();
        let mut faults = Vec::new();
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let number = at + 1;
            match read_line(line) {
                Ok(None) => {}
                Ok(Some((pattern, account))) if map.lines.len() < LINES_MAX => {
                    map.add(pattern, account)
                }
                Ok(Some(_)) => {
                    faults.push(MapFault {
                        line: number,
                        what: format!("more than {LINES_MAX} lines"),
                        cure: "use stars, or auth_to_local of krb5.conf",
                    });
                    break;
                }
                Err((what, cure)) => faults.push(MapFault { line: number, what, cure }),
            }
            if faults.len() >= FAULTS_MAX {
                break;
            }
        }
        if faults.is_empty() { Ok(map) } else { Err(faults) }
    }

    fn add(&mut self, pattern: Box<str>, account: Account) {
        let at = self.lines.len();
        if pattern.contains('*') {
            self.patterns.push(at);
        } else {
            self.exact.entry(pattern.clone()).or_insert(at);
        }
        self.lines.push((pattern, account));
    }

    /// First matching line. O(lines with stars).
    pub(crate) fn account(&self, principal: &str) -> Option<&Account> {
        let exact = self.exact.get(principal).copied();
        let before = exact.unwrap_or(usize::MAX);
        let pattern = self
            .patterns
            .iter()
            .copied()
            .take_while(|&at| at < before)
            .find(|&at| fits(&self.lines[at].0, principal));
        pattern.or(exact).map(|at| &self.lines[at].1)
    }
}

type Line = Option<(Box<str>, Account)>;

fn read_line(line: &[u8]) -> Result<Line, (String, &'static str)> {
    let text =
        std::str::from_utf8(line).map_err(|_| ("not UTF-8".to_owned(), "write names in UTF-8"))?;
    let text = text.split('#').next().unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let Some(pattern) = words.next() else { return Ok(None) };
    let (Some(account), None) = (words.next(), words.next()) else {
        return Err((
            format!("{pattern}: a line needs a principal and an account"),
            "write PRINCIPAL ACCOUNT, separated by blanks",
        ));
    };
    let realm = pattern.rsplit_once('@').map(|(_, realm)| realm);
    if pattern.len() > PRINCIPAL_LEN_MAX
        || realm.is_none_or(str::is_empty)
        || pattern.starts_with('@')
    {
        return Err((
            format!("{pattern} is not a principal with a realm"),
            "write alice@EXAMPLE.ORG, host/*@EXAMPLE.ORG or *@EXAMPLE.ORG",
        ));
    }
    if realm.is_some_and(|realm| realm.contains('*') && realm != "*") {
        return Err((
            format!("{pattern}: a star cannot be a part of the realm"),
            "write the whole realm, or @*",
        ));
    }
    let account = match account {
        "!squash" => Account::Squash,
        "!refuse" => Account::Refuse,
        "!local" => Account::Local,
        word if word.starts_with('!') => {
            return Err((
                format!("{word} is not an account"),
                "write a user's name, !squash, !refuse or !local",
            ));
        }
        name if name.len() > NAME_LEN_MAX || name.contains([':', '/']) => {
            return Err((
                format!("{name} is not a user name"),
                "write the name that getent passwd shows",
            ));
        }
        name => Account::User(name.into()),
    };
    Ok(Some((pattern.into(), account)))
}

fn fits(pattern: &str, principal: &str) -> bool {
    let (pattern, principal) = (pattern.as_bytes(), principal.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), principal.get(n)) {
            (Some(b'*'), _) => {
                back = Some((p + 1, n));
                p += 1;
                continue;
            }
            (None, None) => return true,
            (Some(wanted), Some(byte)) if wanted == byte => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        match back {
            Some((after, from))
                if principal.get(from).is_some_and(|byte| !matches!(byte, b'/' | b'@')) =>
            {
                back = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// One line for each user of a large site.
const LINES_MAX: usize = 1_000_000;
const FAULTS_MAX: usize = 8;
const PRINCIPAL_LEN_MAX: usize = 1024;
const NAME_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str, principal: &str) -> Option<Account> {
        PrincipalMap::parse(text.as_bytes()).unwrap().account(principal).cloned()
    }

    fn user(name: &str) -> Option<Account> {
        Some(Account::User(name.into()))
    }

    #[test]
    fn first_matching_line_decides() {
        let text = "# our people\nalice@A.ORG  al   # she\n*/admin@A.ORG !refuse\nhost/backup.a.org@A.ORG root\nhost/*@A.ORG !squash\n*@B.ORG guest\nbob@B.ORG bob\ncarol@* !local\n";
        assert_eq!(ask(text, "alice@A.ORG"), user("al"));
        assert_eq!(ask(text, "alice/admin@A.ORG"), Some(Account::Refuse));
        assert_eq!(ask(text, "host/backup.a.org@A.ORG"), user("root"));
        assert_eq!(ask(text, "host/n7.a.org@A.ORG"), Some(Account::Squash));
        assert_eq!(ask(text, "bob@B.ORG"), user("guest"));
        assert_eq!(ask(text, "x/y@B.ORG"), None);
        assert_eq!(ask(text, "carol@ANYWHERE"), Some(Account::Local));
        assert_eq!(ask(text, "alice@B.ORG.EVIL"), None);
        assert_eq!(ask(text, "alice@a.org"), None);
    }

    #[test]
    fn stars_match_within_one_component() {
        assert!(
            fits("host/*@A", "host/x.y@A") && fits("*@*", "a@B") && fits("n*e/*@A", "node/7@A")
        );
        for principal in ["host/x/y@A", "host/x@B@A", "host@A", "host/x@A.B"] {
            assert!(!fits("host/*@A", principal), "{principal}");
        }
        assert!(!fits("*@*", "a/b@C") && fits("*a*b*@C", "xaybz@C") && !fits("*a*b*@C", "xbya@C"));
    }

    #[test]
    fn errors_name_line_and_advice() {
        let faults = PrincipalMap::parse(
            b"alice\nalice@A\n\nalice al\n@A x\na@ x\na@*.ORG x\na@A !root\na@A b:c\n",
        )
        .unwrap_err();
        let lines: Vec<_> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!(
            faults[1].to_string(),
            "line 2: alice@A: a line needs a principal and an account; write PRINCIPAL ACCOUNT, separated by blanks"
        );
        assert_eq!(PrincipalMap::parse(b"a@A b c\n\xff\n").unwrap_err().len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>, principal: String) {
            if let Ok(map) = PrincipalMap::parse(&text) {
                map.account(&principal);
            }
        }

        #[test]
        fn principal_matches_itself_and_stars(parts in proptest::collection::vec("[a-z.]{1,6}", 1..4), realm in "[A-Z.]{1,8}") {
            let name = format!("{}@{realm}", parts.join("/"));
            let stars = format!("{}@*", vec!["*"; parts.len()].join("/"));
            proptest::prop_assert!(fits(&name, &name) && fits(&stars, &name));
            let more = format!("*/{stars}");
            proptest::prop_assert!(!fits(&more, &name));
        }
    }
}
