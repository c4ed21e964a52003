//! Parser of idmapd.conf(5): domain, local realms, static map.

use std::collections::HashMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Idmap {
    pub(crate) domain: Option<String>,
    realms: Vec<String>,
    accounts: HashMap<String, String>,
}

impl Idmap {
    pub(crate) fn parse(text: &str) -> Self {
        let mut idmap = Idmap::default();
        let mut section = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.trim().to_ascii_lowercase();
                continue;
            }
            if line.starts_with(['#', ';']) {
                continue;
            }
            let Some((key, value)) =
                line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
            else {
                continue;
            };
            match section.as_str() {
                "general" if key.eq_ignore_ascii_case("Domain") => {
                    idmap.domain = Some(value.to_ascii_lowercase())
                }
                "general" if key.eq_ignore_ascii_case("Local-Realms") => {
                    idmap.realms = value
                        .split(',')
                        .map(|realm| realm.trim().to_ascii_uppercase())
                        .filter(|realm| !realm.is_empty())
                        .collect();
                }
                "static" => {
                    idmap.accounts.insert(key.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
        idmap
    }

    pub(super) fn local(&self, principal: &str) -> Option<&str> {
        self.accounts.get(principal).map(String::as_str)
    }

    pub(super) fn names_realm(&self, realm: &str) -> bool {
        self.realms.contains(&realm.to_ascii_uppercase())
    }

    pub(super) fn is_local_realm(&self, realm: &str) -> bool {
        let realm = realm.to_ascii_uppercase();
        if self.realms.is_empty() {
            return self.domain.as_ref().is_some_and(|domain| domain.to_ascii_uppercase() == realm);
        }
        self.realms.contains(&realm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_settings_and_ignores_others() {
        let text = "[General]\nVerbosity = 0\n# c\nDomain = Example.ORG\n\n[Mapping]\nNobody-User = nobody\n[Static]\nalice@X.ORG = al\nnfs/h@X.ORG = root\n";
        let idmap = Idmap::parse(text);
        assert_eq!(idmap.domain.as_deref(), Some("example.org"));
        assert_eq!(
            (idmap.local("alice@X.ORG"), idmap.local("nfs/h@X.ORG"), idmap.local("bob@X.ORG")),
            (Some("al"), Some("root"), None)
        );
        assert!(idmap.is_local_realm("EXAMPLE.ORG") && !idmap.is_local_realm("X.ORG"));
        let idmap = Idmap::parse("[General]\nLocal-Realms = a.org, B.ORG\n");
        assert!(
            idmap.is_local_realm("A.ORG")
                && idmap.is_local_realm("B.ORG")
                && !idmap.is_local_realm("EXAMPLE.ORG")
        );
    }
}
