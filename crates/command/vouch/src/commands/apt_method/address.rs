//! `vouch://@HOST,HOSTID[:PORT]/PATH`; the path may begin with a revision, as in URLs of gateways.
//! The port stands at the end, because apt drops the text between a port and the path.

use vouch_gateway::{Page, Selector};
use vouch_tree::TreeName;

use crate::exit::{Failure, Outcome};
use crate::revision_options::RevisionArgs;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) origin: Origin,
    /// Without the revision.
    pub(super) path: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) name: TreeName,
    pub(super) revision: RevisionArgs,
}

impl Address {
    pub(super) fn parse(uri: &str) -> Outcome<Self> {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::input(uri, why).cure("write it as vouch://@HOST,HOSTID[:PORT]/PATH")
        };
        let rest = uri.strip_prefix("vouch://").ok_or_else(|| wrong(&"is no address of a tree"))?;
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        // apt leaves out an empty user in some places.
        let name = name.strip_prefix('@').unwrap_or(name);
        let name = match name.rsplit_once(',').map(|(host, id)| (host, id.split_once(':'))) {
            Some((host, Some((id, port)))) => format!("@{host}:{port},{id}"),
            _ => format!("@{name}"),
        };
        let name = name.parse::<TreeName>().map_err(|error| wrong(&error))?;
        let target = match Page::parse(path) {
            Ok(Page::Path(target)) => target,
            Ok(Page::Revisions) => return Err(wrong(&"names no file")),
            Err(error) => return Err(wrong(&error)),
        };
        let revision = match &target.selector {
            Selector::Newest { .. } => RevisionArgs::default(),
            Selector::Number(number) => RevisionArgs::number(*number),
            Selector::Tag(tag) => RevisionArgs { tag: Some(tag.clone()), ..Default::default() },
        };
        Ok(Self { origin: Origin { name, revision }, path: target.path() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn addresses_name_tree_revision_and_path() {
        let parse = |path: &str| Address::parse(&format!("vouch://@h,{HOSTID}:4340{path}"));
        let newest = parse("/debian/./pool//g%2b%2b_1~a.deb").expect("an address");
        assert_eq!(newest.path, b"debian/pool/g++_1~a.deb");
        assert_eq!(newest.origin.name.to_string(), format!("@h:4340,{HOSTID}"));
        let tagged = parse("/@tag:stable/debian/InRelease").expect("an address");
        assert_eq!(tagged.path, b"debian/InRelease");
        assert_eq!(tagged.origin.revision.tag.as_deref(), Some("stable"));
        assert_eq!(parse("/@7/a").expect("an address").origin.revision.revision, Some(7));
        let without =
            Address::parse(&format!("vouch://h:4340,{HOSTID}/debian/")).expect("the same");
        assert_eq!(without.origin, newest.origin);
    }

    #[test]
    fn wrong_addresses_are_refused_with_the_form() {
        let tree = format!("vouch://@h,{HOSTID}");
        for uri in [
            "http://h/a",
            "vouch://h/a",
            &format!("{tree}/../a"),
            &format!("{tree}/%2"),
            &format!("{tree}/@x/a"),
        ] {
            let failure = Address::parse(uri).expect_err(uri).to_string();
            assert!(failure.contains("vouch://@HOST"), "{failure}");
        }
    }
}
