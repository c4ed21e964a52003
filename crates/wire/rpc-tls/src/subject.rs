//! Compares subjects that people write with those of certificates. RFC 4514 permits several texts for
//! one name; RFC 5280, section 7.1, compares values without regard to case and repeated blanks.

use crate::der::{Der, attribute_type, string};

/// Equal for two texts of the same name, in the certificate's order or in the reverse order of
/// RFC 4514. Never shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectKey(Vec<Vec<(String, Value)>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    Text(String),
    /// A value that is no text: its encoding.
    Encoded(Vec<u8>),
}

impl SubjectKey {
    /// `Err` says what is wrong with the text, without the form to write.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut rest = text.trim_start();
        let mut forward = Vec::new();
        let mut set = Vec::new();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=').ok_or("a part has no =")?;
            let name = type_of(name.trim())
                .ok_or("a part names no known attribute type; write an unusual one by its numbers, such as 2.5.4.65")?;
            let (value, end, after) = value(after.trim_start())?;
            set.push((name, value));
            if end != Some('+') {
                set.sort();
                forward.push(std::mem::take(&mut set));
            }
            rest = after.trim_start();
            if end.is_some() && rest.is_empty() {
                return Err("it ends in a separator");
            }
        }
        let mut reverse = forward.clone();
        reverse.reverse();
        Ok(SubjectKey(forward.min(reverse)))
    }
}

/// The value, its separator if there is one, and the text after it.
fn value(text: &str) -> Result<(Value, Option<char>, &str), &'static str> {
    let is_quoted = text.starts_with('"');
    let mut bytes: Vec<u8> = Vec::new();
    // Blanks at the end do not count, unless they are escaped or quoted.
    let mut len_kept = 0;
    let mut chars = text.char_indices().skip(usize::from(is_quoted));
    let mut end = (None, "");
    let mut is_open = is_quoted;
    while let Some((at, c)) = chars.next() {
        let mut buffer = [0; 4];
        match c {
            '"' if is_open => is_open = false,
            '\\' => {
                let (_, next) = chars
                    .next()
                    .ok_or("it ends in a backslash; a blank at the end is written twice")?;
                match text.get(at + 1..at + 3).and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
                    Some(byte) if next.is_ascii_hexdigit() => {
                        bytes.push(byte);
                        chars.next();
                    }
                    _ => bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes()),
                }
                len_kept = bytes.len();
            }
            ',' | '+' if !is_open => {
                end = (Some(c), &text[at + 1..]);
                break;
            }
            ';' if !is_open => return Err("it has a semicolon without a backslash"),
            c if is_quoted && !is_open && c != ' ' => return Err("text follows a quoted value"),
            c => {
                bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
                if is_open || c != ' ' {
                    len_kept = bytes.len();
                }
            }
        }
    }
    if is_open {
        return Err("a quotation mark is not closed");
    }
    bytes.truncate(len_kept);
    let value = match text.strip_prefix('#') {
        Some(_) => {
            encoded(&bytes[1..]).ok_or("a value after # is no encoding in hexadecimal digits")?
        }
        None => {
            Value::Text(folded(std::str::from_utf8(&bytes).map_err(|_| "a value is no UTF-8")?))
        }
    };
    Ok((value, end.0, end.1))
}

fn encoded(digits: &[u8]) -> Option<Value> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()?;
    let mut value = Der(&bytes);
    let (tag, content) = value.next().filter(|_| value.0.is_empty())?;
    Some(string(tag, content).map_or(Value::Encoded(bytes), |text| Value::Text(folded(&text))))
}

fn folded(text: &str) -> String {
    text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// In the spelling of [`attribute_type`], in lower case.
fn type_of(name: &str) -> Option<String> {
    let name = name.to_lowercase();
    let numbers = name.strip_prefix("oid.").unwrap_or(&name);
    let known = match &*name {
        "commonname" => "cn",
        "countryname" => "c",
        "localityname" => "l",
        "s" | "stateorprovincename" => "st",
        "organizationname" => "o",
        "organizationalunitname" => "ou",
        "userid" => "uid",
        "domaincomponent" => "dc",
        "e" | "email" => "emailaddress",
        name @ ("cn" | "serialnumber" | "c" | "l" | "st" | "o" | "ou" | "uid" | "dc"
        | "emailaddress") => name,
        name if name.starts_with("oid.") && !numbers.contains('.') => name,
        name => {
            let numbers = OTHER_TYPES
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(numbers, |(_, numbers)| numbers);
            return Some(attribute_type(&encoded_oid(numbers)?).to_lowercase());
        }
    };
    Some(known.to_owned())
}

/// Names that openssl(1) and others write for types that we show by number.
const OTHER_TYPES: [(&str, &str); 24] = [
    ("sn", "2.5.4.4"),
    ("surname", "2.5.4.4"),
    ("street", "2.5.4.9"),
    ("streetaddress", "2.5.4.9"),
    ("title", "2.5.4.12"),
    ("t", "2.5.4.12"),
    ("description", "2.5.4.13"),
    ("businesscategory", "2.5.4.15"),
    ("postalcode", "2.5.4.17"),
    ("postofficebox", "2.5.4.18"),
    ("telephonenumber", "2.5.4.20"),
    ("name", "2.5.4.41"),
    ("gn", "2.5.4.42"),
    ("givenname", "2.5.4.42"),
    ("initials", "2.5.4.43"),
    ("generationqualifier", "2.5.4.44"),
    ("x500uniqueidentifier", "2.5.4.45"),
    ("dnq", "2.5.4.46"),
    ("dnqualifier", "2.5.4.46"),
    ("pseudonym", "2.5.4.65"),
    ("organizationidentifier", "2.5.4.97"),
    ("jurisdictionc", "1.3.6.1.4.1.311.60.2.1.3"),
    ("unstructuredname", "1.2.840.113549.1.9.2"),
    ("unstructuredaddress", "1.2.840.113549.1.9.8"),
];

fn encoded_oid(numbers: &str) -> Option<Vec<u8>> {
    let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
    let (first, second) = (numbers.next()??, numbers.next()??);
    let first = first.checked_mul(40)?.checked_add(second)?;
    let mut bytes = Vec::new();
    for number in [Some(first)].into_iter().chain(numbers) {
        let number = number?;
        let groups = (0..5)
            .rev()
            .map(|at| number >> (7 * at))
            .skip_while(|&rest| rest == 0)
            .collect::<Vec<_>>();
        let groups = if groups.is_empty() { vec![0] } else { groups };
        let last = groups.len() - 1;
        bytes.extend(
            groups
                .iter()
                .enumerate()
                .map(|(at, rest)| (rest & 0x7f) as u8 | if at < last { 0x80 } else { 0 }),
        );
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_name_are_equal() {
        for (one, other) in [
            ("O=Example, CN=n7", "CN=n7,O=Example"),
            ("O=Example, CN=n7", " o = Example ,cn=N7 "),
            ("O=Example, 2.5.4.12=intern, CN=n7", "CN=n7,title=intern,O=Example"),
            ("GN=Ada, SN=L", "OID.2.5.4.42=Ada, surname=L"),
            ("O=Example\\, Inc., CN=n7", "O=\"Example, Inc.\",CN=n7"),
            ("CN=n7\\ ", "CN=n7\\20"),
            ("CN=n7", "2.5.4.3=#0C026E37"),
            ("CN=n7", "OID.2.5.4.3=n7"),
            ("emailAddress=a@b", "1.2.840.113549.1.9.1=a@b"),
            ("OID.550442=x, CN=n7", "2.5.4.66=x, CN=n7"),
            ("C=DE, OU=a+CN=b", "C=DE,CN=b + OU=a"),
            ("CN=\\c3\\bc", "CN=ü"),
            ("", " "),
        ] {
            assert_eq!(SubjectKey::parse(one), SubjectKey::parse(other), "{one:?} and {other:?}");
            assert!(SubjectKey::parse(one).is_ok(), "{one:?}");
        }
    }

    #[test]
    fn other_names_differ_and_other_texts_are_refused() {
        let key = |text| SubjectKey::parse(text).expect(text);
        for (one, other) in [
            ("CN=n7", "CN=n8"),
            ("O=Example, CN=n7", "O=Example+CN=n7"),
            ("C=DE, O=a, CN=b", "O=a, C=DE, CN=b"),
            ("CN=\\#0403abcdef", "CN=#0403abcdef"),
            ("CN=a\\, O=b", "CN=a, O=b"),
            ("CN=n7", "OU=n7"),
        ] {
            assert_ne!(key(one), key(other), "{one:?} and {other:?}");
        }
        for text in [
            "/O=Example/CN=n7",
            "n7",
            "CN=n7,",
            "CN=n7\\",
            "CN=#xy",
            "CN=\"n7",
            "CN=a; O=b",
            "CN=\"a\"b",
            "CN=\\ff",
            "=n7",
            "titel=intern, CN=n7",
        ] {
            assert!(SubjectKey::parse(text).is_err(), "{text:?}");
        }
    }
}
