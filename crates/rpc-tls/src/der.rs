//! Reads the few fields of certificates and revocation lists (RFC 5280) that rustls does not show.
//! Names are written as in RFC 4514, with escaped separators, so that no name can look like
//! another.

/// Lengths are checked against the bytes present.
#[derive(Clone, Copy)]
pub(crate) struct Der<'a>(pub(crate) &'a [u8]);

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const LATIN_STRING: u8 = 0x14;
const BMP_STRING: u8 = 0x1e;

impl<'a> Der<'a> {
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
            0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
            0x83 => (u32::from_be_bytes([0, *rest.first()?, *rest.get(1)?, *rest.get(2)?]) as usize, rest.get(3..)?),
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    pub(crate) fn take(&mut self, tag: u8) -> Option<Der<'a>> {
        let mut ahead = *self;
        let content = ahead.next().filter(|(found, _)| *found == tag)?.1;
        *self = ahead;
        Some(Der(content))
    }

    fn time(&mut self) -> Option<i64> {
        let (tag, text) = self.next()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let year: i64 = digits(text.get(..2)?)?;
                // RFC 5280 §4.1.2.5.1.
                (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
            }
            GENERALIZED_TIME => (digits(text.get(..4)?)?, text.get(4..)?),
            _ => return None,
        };
        let part = |at: usize| digits(rest.get(at..at + 2)?);
        let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
        let is_valid = rest.len() == 10 && (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
        is_valid.then(|| days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
    }
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// March begins the year, so that leap days end it.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

pub(crate) struct Certificate<'a> {
    pub(crate) subject: Der<'a>,
    pub(crate) valid: std::ops::Range<i64>,
    pub(crate) alternative_names: Option<Der<'a>>,
}

/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

pub(crate) fn certificate(bytes: &[u8]) -> Option<Certificate<'_>> {
    let mut fields = Der(bytes).take(SEQUENCE)?.take(SEQUENCE)?;
    let _version = fields.take(0xa0);
    let _serial = fields.take(INTEGER)?;
    let _algorithm = fields.take(SEQUENCE)?;
    let _issuer = fields.take(SEQUENCE)?;
    let mut valid = fields.take(SEQUENCE)?;
    let valid = valid.time()?..valid.time()?;
    let subject = fields.take(SEQUENCE)?;
    let _key = fields.take(SEQUENCE)?;
    let mut alternative_names = None;
    while let Some((tag, content)) = fields.next() {
        if tag != 0xa3 {
            continue;
        }
        let mut extensions = Der(content).take(SEQUENCE)?;
        while let Some(mut extension) = extensions.take(SEQUENCE) {
            let id = extension.take(OID)?;
            let _critical = extension.take(BOOLEAN);
            let mut value = extension.take(OCTET_STRING)?;
            if id.0 == SUBJECT_ALT_NAME {
                alternative_names = Some(value.take(SEQUENCE)?);
            }
        }
    }
    Some(Certificate { subject, valid, alternative_names })
}

/// `nextUpdate`, if the list has it. `None` if this is no list.
pub(crate) fn revocation_due(list: &[u8]) -> Option<Option<i64>> {
    let mut fields = Der(list).take(SEQUENCE)?.take(SEQUENCE)?;
    let _version = fields.take(INTEGER);
    let _algorithm = fields.take(SEQUENCE)?;
    let _issuer = fields.take(SEQUENCE)?;
    let _this_update = fields.time()?;
    let mut ahead = fields;
    Some(ahead.time())
}

/// In the certificate's order: `C=DE, O=Example, CN=node7`. Also returns the first common name,
/// unescaped.
pub(crate) fn name(mut name: Der<'_>) -> (String, Option<String>) {
    let (mut text, mut common) = (String::new(), None);
    while let Some(mut set) = name.take(SET) {
        let mut separator = ", ";
        while let Some(mut attribute) = set.take(SEQUENCE) {
            let Some(id) = attribute.take(OID) else { continue };
            let Some(value) = attribute.next().and_then(|(tag, bytes)| string(tag, bytes)) else { continue };
            if !text.is_empty() {
                text.push_str(separator);
            }
            separator = "+";
            text.push_str(&attribute_type(id.0));
            text.push('=');
            escape(&value, &mut text);
            if id.0 == [0x55, 4, 3] {
                common.get_or_insert(value);
            }
        }
    }
    (text, common)
}

fn attribute_type(id: &[u8]) -> String {
    let known = match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        other => return format!("OID.{}", data_encoding::HEXLOWER.encode(other)),
    };
    known.to_owned()
}

pub(crate) fn string(tag: u8, bytes: &[u8]) -> Option<String> {
    match tag {
        UTF8_STRING => String::from_utf8(bytes.to_vec()).ok(),
        LATIN_STRING => Some(bytes.iter().map(|&byte| char::from(byte)).collect()),
        BMP_STRING => {
            let units = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()
        }
        // NumericString, PrintableString, IA5String, VisibleString.
        0x12 | 0x13 | 0x16 | 0x1a => bytes.is_ascii().then(|| String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        if matches!(c, ',' | '+' | '=' | '"' | '\\' | '<' | '>' | ';' | '#') {
            out.push('\\');
            out.push(c);
        } else if c.is_control() {
            out.extend(c.to_string().bytes().map(|byte| format!("\\{byte:02x}")));
        } else {
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_forms_are_read() {
        let time = |tag: u8, text: &str| {
            let bytes = [&[tag, text.len() as u8], text.as_bytes()].concat();
            Der(&bytes).time()
        };
        assert_eq!(time(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(time(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(GENERALIZED_TIME, "20000229120000Z"), Some(951_825_600));
        for wrong in ["20001329120000Z", "2000022912000Z", "20000229120000", "2000-229120000Z", "20000229250000Z"] {
            assert_eq!(time(GENERALIZED_TIME, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn separators_in_names_are_escaped() {
        let attribute = |last: u8, text: &str| {
            let value = [&[UTF8_STRING, text.len() as u8], text.as_bytes()].concat();
            let pair = [&[OID, 3, 0x55, 4, last][..], &value].concat();
            let pair = [&[SEQUENCE, pair.len() as u8][..], &pair].concat();
            [&[SET, pair.len() as u8][..], &pair].concat()
        };
        let bytes = [attribute(10, "Example, Inc."), attribute(3, "n7, O=Other\n")].concat();
        assert_eq!(name(Der(&bytes)), ("O=Example\\, Inc., CN=n7\\, O\\=Other\\0a".into(), Some("n7, O=Other\n".into())));
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = certificate(&bytes);
            let _ = revocation_due(&bytes);
            let _ = name(Der(&bytes));
        }
    }
}
