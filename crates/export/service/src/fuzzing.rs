//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::audit::names::moved_paths::table::Table;
use crate::exports::syntax;
use crate::identity::principal_map::PrincipalMap;
use crate::lease::record::{LeaseRecord, is_head_name};
use crate::management::Role;
use crate::tls::Holder;
use crate::tls::certificate_map::CertificateMap;
use crate::transport::proxy_header::{HEADER_LEN_MAX, Header};

/// A record of a shared state directory's lease has one form, and the next head can claim the epoch
/// after it.
pub fn lease_record(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(record) = LeaseRecord::parse(text) else { return };
    assert_eq!(record.to_text(), text);
    assert!(record.epoch.0.checked_add(1).is_some() && record.renewal.checked_add(1).is_some());
    assert!(is_head_name(&record.head) && record.before.iter().all(|name| is_head_name(name)));
}

/// The first line is a principal, the rest is the map. The map answers or is refused with faults
/// that name their lines.
pub fn principal_map(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (principal, text) =
        (String::from_utf8_lossy(&input[..end]), input.get(end + 1..).unwrap_or_default());
    match PrincipalMap::parse(text) {
        Ok(map) => drop(map.account(&principal).cloned()),
        Err(faults) => assert!(
            !faults.is_empty() && faults.iter().all(|fault| fault.to_string().starts_with("line "))
        ),
    }
}

/// A header has one length, and each part of it is incomplete.
pub fn proxy_header(input: &[u8]) {
    let Ok(Header::Complete(len, _)) = Header::parse(input) else { return };
    assert!(len <= input.len().min(HEADER_LEN_MAX));
    assert_eq!(Header::parse(&input[..len - 1]), Ok(Header::Incomplete));
}

/// Every list of exports is accepted, possibly with warnings, or refused with faults that name their
/// lines.
pub fn export_list(input: &[u8]) {
    let lines = input.iter().filter(|&&byte| byte == b'\n').count() + 1;
    match syntax::parse(input) {
        Ok(parsed) => {
            assert!(parsed.warnings.iter().all(|warning| (1..=lines).contains(&warning.line)));
            assert!(parsed.entries.iter().all(|entry| !entry.clients.is_empty()));
        }
        Err(faults) => assert!(
            !faults.is_empty() && faults.iter().all(|fault| (1..=lines).contains(&fault.line))
        ),
    }
}

/// A map from certificates to users parses or is refused.
pub fn certificate_map(text: &str) {
    let _ = CertificateMap::<Holder>::parse(text);
    let _ = CertificateMap::<Role>::parse(text);
}

/// The table of moved paths of an audit trail round-trips.
pub fn moved_paths(text: &str) {
    let table = Table::parse(text);
    assert_eq!(Table::parse(&table.text()), table);
}
