//! `name@domain`, or numbers, as Linux sends them under AUTH_SYS (RFC 8881 §5.9).

use std::io::Write as _;

use vouch_nfs4::Status;
use vouch_vfs::Blocking;

use crate::error::OpError;
use crate::{Config, Flavour, Identity};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    User,
    Group,
}

#[derive(Clone, Copy)]
pub(crate) struct Owners<'a> {
    pub(crate) identity: &'a dyn Identity,
    pub(crate) config: &'a Config,
    pub(crate) flavour: Flavour,
    pub(crate) blocking: Blocking,
}

impl Owners<'_> {
    /// An id without a name is sent as a number.
    pub(crate) fn write(&self, kind: Kind, id: u32, out: &mut Vec<u8>) -> Result<(), OpError> {
        let numeric =
            self.config.numeric_owners && matches!(self.flavour, Flavour::Sys | Flavour::None);
        let name = match (numeric, kind) {
            (true, _) => None,
            (false, Kind::User) => self.identity.user_name(id, self.blocking)?,
            (false, Kind::Group) => self.identity.group_name(id, self.blocking)?,
        };
        let written = match name {
            Some(name) => write!(out, "{name}@{}", self.config.domain),
            None => write!(out, "{id}"),
        };
        written.expect("writing to a vector cannot fail");
        Ok(())
    }

    pub(crate) fn parse(&self, kind: Kind, owner: &[u8]) -> Result<u32, OpError> {
        if owner.is_empty() {
            return Err(Status::INVAL.into());
        }
        let text = std::str::from_utf8(owner).map_err(|_| Status::BADOWNER)?;
        if let Some(id) = number(text) {
            return Ok(id);
        }
        let (name, domain) = text.rsplit_once('@').ok_or(Status::BADOWNER)?;
        if !domain.eq_ignore_ascii_case(&self.config.domain) {
            return Err(Status::BADOWNER.into());
        }
        let id = match kind {
            Kind::User => self.identity.uid(name, self.blocking)?,
            Kind::Group => self.identity.gid(name, self.blocking)?,
        };
        // Clients send a number at our domain for ids that they cannot translate.
        id.or_else(|| number(name)).ok_or_else(|| Status::BADOWNER.into())
    }
}

/// No leading zeros (§5.9).
fn number(text: &str) -> Option<u32> {
    let digits =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if digits { text.parse().ok().filter(|&id| id != u32::MAX) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_sign_and_no_leading_zeros() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("4294967294"), Some(u32::MAX - 1));
        for text in ["", "+1", "-1", "01", "4294967295", "4294967296", "1a", " 1"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
