//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::audit_trail::configuration_text::Configuration;

/// A configuration of a trail round-trips or is rejected.
pub fn trail_configuration(bytes: &[u8]) {
    if let Some(standing) = Configuration::parse(bytes) {
        assert!(Configuration::parse(&standing.text()).is_some(), "the encoded form decodes");
    }
}
