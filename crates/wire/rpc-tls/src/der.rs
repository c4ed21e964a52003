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
            0x83 => (
                u32::from_be_bytes([0, *rest.first()?, *rest.get(1)?, *rest.get(2)?]) as usize,
                rest.get(3..)?,
            ),
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
        let is_valid = rest.len() == 10
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        is_valid.then(|| {
            days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
        })
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
            // One instance of each extension (RFC 5280, section 4.2): of two, readers would take
            // different ones.
            if id.0 == SUBJECT_ALT_NAME
                && alternative_names.replace(value.take(SEQUENCE)?).is_some()
            {
                return None;
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
/// unescaped. A value that is no text is its encoding, as `#0403abcdef` (RFC 4514, section 2.4), so that
/// different subjects have different texts. `None` if the name is malformed.
pub(crate) fn name(mut name: Der<'_>) -> Option<(String, Option<String>)> {
    let (mut text, mut common) = (String::new(), None);
    while !name.0.is_empty() {
        let mut set = name.take(SET).filter(|set| !set.0.is_empty())?;
        let mut separator = ", ";
        while !set.0.is_empty() {
            let mut attribute = set.take(SEQUENCE)?;
            let id = attribute.take(OID)?;
            let encoding = attribute.0;
            let (tag, bytes) = attribute.next().filter(|_| attribute.0.is_empty())?;
            if !text.is_empty() {
                text.push_str(separator);
            }
            separator = "+";
            text.push_str(&attribute_type(id.0));
            text.push('=');
            match string(tag, bytes) {
                Some(value) => {
                    escape(&value, &mut text);
                    if id.0 == [0x55, 4, 3] {
                        common.get_or_insert(value);
                    }
                }
                None => {
                    text.push('#');
                    text.push_str(&data_encoding::HEXLOWER.encode(encoding));
                }
            }
        }
    }
    Some((text, common))
}

pub(crate) fn attribute_type(id: &[u8]) -> String {
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
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
        }
        // NumericString, PrintableString, IA5String, VisibleString.
        0x12 | 0x13 | 0x16 | 0x1a => {
            bytes.is_ascii().then(|| String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    }
}

fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let is_outer_blank = c == ' ' && (at == 0 || at == last);
        if is_outer_blank || matches!(c, ',' | '+' | '=' | '"' | '\\' | '<' | '>' | ';' | '#') {
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
        for wrong in [
            "20001329120000Z",
            "2000022912000Z",
            "20000229120000",
            "2000-229120000Z",
            "20000229250000Z",
        ] {
            assert_eq!(time(GENERALIZED_TIME, wrong), None, "{wrong}");
        }
    }

    fn attribute(last: u8, tag: u8, value: &[u8]) -> Vec<u8> {
        let value = [&[tag, value.len() as u8], value].concat();
        let pair = [&[OID, 3, 0x55, 4, last][..], &value].concat();
        let pair = [&[SEQUENCE, pair.len() as u8][..], &pair].concat();
        [&[SET, pair.len() as u8][..], &pair].concat()
    }

    #[test]
    fn separators_in_names_are_escaped() {
        let bytes = [
            attribute(10, UTF8_STRING, b"Example, Inc."),
            attribute(3, UTF8_STRING, b"n7, O=Other\n"),
        ]
        .concat();
        let text = "O=Example\\, Inc., CN=n7\\, O\\=Other\\0a".to_owned();
        assert_eq!(name(Der(&bytes)), Some((text, Some("n7, O=Other\n".into()))));
    }

    #[test]
    fn different_subjects_have_different_texts() {
        let plain = attribute(3, UTF8_STRING, b"node");
        // UniversalString, OCTET STRING, invalid UTF-8, half a character of a BMPString, blanks.
        let others = [
            attribute(10, 0x1c, &[0, 0, 0, b'x']),
            attribute(10, OCTET_STRING, b"x"),
            attribute(10, UTF8_STRING, &[0xff]),
            attribute(10, BMP_STRING, &[0, b'x', 0]),
            attribute(10, BMP_STRING, &[0, b'x', 0, 0]),
            attribute(10, UTF8_STRING, b"x "),
            attribute(10, UTF8_STRING, b"x"),
            Vec::new(),
        ];
        let texts: std::collections::HashSet<String> = others
            .iter()
            .map(|other| {
                name(Der(&[&other[..], &plain].concat())).expect("well formed").0.trim().to_owned()
            })
            .collect();
        assert_eq!(texts.len(), others.len(), "{texts:?}");
        // An empty set, an attribute without value, bytes behind the name.
        for malformed in [&[SET, 0][..], &[SET, 7, SEQUENCE, 5, OID, 3, 0x55, 4, 3], &[0]] {
            assert_eq!(name(Der(&[malformed, &plain].concat())), None);
            assert_eq!(name(Der(&[&plain[..], malformed].concat())), None);
        }
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
