//! Clear parts of an AP-REQ, for messages to the administrator; they prove nothing.

use vouch_krb5_seal::Enctype;

use crate::error::printable;

#[derive(Clone, Debug, PartialEq, Eq)]
/// RFC 4120 §5.3.
pub(crate) struct Ticket {
    pub(crate) service: String,
    pub(crate) enctype: i32,
    pub(crate) kvno: Option<u32>,
}

impl Ticket {
    pub(crate) fn of_token(token: &[u8]) -> Option<Ticket> {
        let ticket = field(request(token)?, 3)?;
        let (_, fields) = element(ticket, 0x61).and_then(|(_, body)| element(body, 0x30))?;
        let realm = text(element(field(fields, 1)?, 0x1b)?.1);
        let name = element(field(fields, 2)?, 0x30)?.1;
        let mut parts = element(field(name, 1)?, 0x30)?.1;
        let mut service = String::new();
        while let Some((tag, part, rest)) = element_any(parts) {
            if tag != 0x1b || service.len() > TEXT_LEN_MAX {
                return None;
            }
            if !service.is_empty() {
                service.push('/');
            }
            service.push_str(&text(part));
            parts = rest;
        }
        let sealed = element(field(fields, 3)?, 0x30)?.1;
        let enctype = integer(element(field(sealed, 0)?, 0x02)?.1)?;
        let kvno = field(sealed, 1)
            .and_then(|body| integer(element(body, 0x02)?.1))
            .map(|kvno| kvno as u32);
        Some(Ticket { service: format!("{service}@{realm}"), enctype, kvno })
    }
}

/// Encrypted parts of an AP-REQ (RFC 4120 §5.5.1).
pub(crate) struct Request<'a> {
    pub(crate) ticket: &'a [u8],
    pub(crate) authenticator: (i32, &'a [u8]),
}

impl<'a> Request<'a> {
    pub(crate) fn of_token(token: &'a [u8]) -> Option<Self> {
        let fields = request(token)?;
        let sealed = element(field(fields, 4)?, 0x30)?.1;
        let enctype = integer(element(field(sealed, 0)?, 0x02)?.1)?;
        Some(Self {
            ticket: field(fields, 3)?,
            authenticator: (enctype, element(field(sealed, 2)?, 0x04)?.1),
        })
    }

    pub(crate) fn sealed_ticket(&self) -> Option<(i32, &'a [u8])> {
        let (_, fields) = element(self.ticket, 0x61).and_then(|(_, body)| element(body, 0x30))?;
        let sealed = element(field(fields, 3)?, 0x30)?.1;
        Some((integer(element(field(sealed, 0)?, 0x02)?.1)?, element(field(sealed, 2)?, 0x04)?.1))
    }
}

/// The sender's clock in an authenticator's plaintext (RFC 4120 §5.5.1), seconds since 1970.
pub(crate) fn made_s(authenticator: &[u8]) -> Option<u64> {
    let (_, fields) = element(authenticator, 0x62).and_then(|(_, body)| element(body, 0x30))?;
    // YYYYMMDDHHMMSSZ (§5.2.3).
    let digits = element(field(fields, 5)?, 0x18)?
        .1
        .strip_suffix(b"Z")
        .filter(|digits| digits.len() == 14)?;
    let number = |at: std::ops::Range<usize>| {
        std::str::from_utf8(&digits[at]).ok().and_then(|text| text.parse::<u64>().ok())
    };
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that start in March have the leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    const DAYS_TO_1970: u64 = 719_468;
    Some(
        (days.checked_sub(DAYS_TO_1970)? * 24 + number(8..10)?) * 3600
            + number(10..12)? * 60
            + number(12..14)?,
    )
}

#[cfg(test)]
pub(crate) fn subkey(authenticator: &[u8]) -> Option<&[u8]> {
    let (_, fields) = element(authenticator, 0x62).and_then(|(_, body)| element(body, 0x30))?;
    let key = element(field(fields, 6)?, 0x30)?.1;
    Some(element(field(key, 1)?, 0x04)?.1)
}

/// RFC 4121 §4.1.
fn request(token: &[u8]) -> Option<&[u8]> {
    // [APPLICATION 0] { mechanism, 01 00, AP-REQ }.
    let (_, token) = element(token, 0x60)?;
    let after = element_any(token)?.2;
    let request = after.strip_prefix(&[1, 0]).unwrap_or(after);
    element(request, 0x6e).and_then(|(_, body)| element(body, 0x30)).map(|(_, fields)| fields)
}

impl std::fmt::Display for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a ticket for {} (", self.service)?;
        match Enctype::try_from(self.enctype) {
            Ok(enctype) => write!(f, "{enctype}")?,
            Err(_) => write!(f, "{}", old_name(self.enctype))?,
        }
        match self.kvno {
            Some(kvno) => write!(f, ", kvno {kvno})"),
            None => write!(f, ")"),
        }
    }
}

pub(crate) fn old_name(enctype: i32) -> String {
    match enctype {
        1..=3 => "single DES".into(),
        16 => "des3-cbc-sha1".into(),
        23 => "arcfour-hmac".into(),
        24 => "arcfour-hmac-exp".into(),
        25 => "camellia128-cts-cmac".into(),
        26 => "camellia256-cts-cmac".into(),
        other => format!("enctype {other}"),
    }
}

fn text(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_LEN_MAX)]))
}

const TEXT_LEN_MAX: usize = 256;

fn element_any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (body, rest) = rest.split_at_checked(len)?;
    Some((tag, body, rest))
}

fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element_any(bytes).filter(|(found, ..)| *found == tag).map(|(_, body, rest)| (rest, body))
}

fn field(mut fields: &[u8], number: u8) -> Option<&[u8]> {
    while let Some((tag, body, rest)) = element_any(fields) {
        if tag == 0xa0 | number {
            return Some(body);
        }
        fields = rest;
    }
    None
}

fn integer(bytes: &[u8]) -> Option<i32> {
    let (&first, _) = bytes.split_first()?;
    (bytes.len() <= 4).then(|| {
        bytes.iter().fold(if first & 0x80 != 0 { -1 } else { 0 }, |value, &byte| {
            value << 8 | i32::from(byte)
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let mut bytes = vec![tag];
        match body.len() {
            0..128 => bytes.push(body.len() as u8),
            len => bytes.extend_from_slice(&[0x82, (len >> 8) as u8, len as u8]),
        }
        bytes.extend_from_slice(&body);
        bytes
    }

    fn token(enctype: u8, cipher_len: usize) -> Vec<u8> {
        token_for(&[b"nfs", b"fs1.example.org"], enctype, cipher_len)
    }

    pub(crate) fn token_for(service: &[&[u8]], enctype: u8, cipher_len: usize) -> Vec<u8> {
        let number = |field: u8, value: u8| der(0xa0 | field, &[&der(2, &[&[value]])]);
        let names =
            der(0x30, &[&service.iter().flat_map(|part| der(0x1b, &[part])).collect::<Vec<u8>>()]);
        let name = der(0xa2, &[&der(0x30, &[&number(0, 2), &der(0xa1, &[&names])])]);
        let sealed = der(
            0xa3,
            &[&der(
                0x30,
                &[
                    &number(0, enctype),
                    &number(1, 7),
                    &der(0xa2, &[&der(4, &[&vec![9; cipher_len]])]),
                ],
            )],
        );
        let ticket = der(
            0x61,
            &[&der(
                0x30,
                &[&number(0, 5), &der(0xa1, &[&der(0x1b, &[b"EXAMPLE.ORG"])]), &name, &sealed],
            )],
        );
        let proof =
            der(0xa4, &[&der(0x30, &[&number(0, 17), &der(0xa2, &[&der(4, &[b"sealed"])])])]);
        let request = der(
            0x6e,
            &[&der(
                0x30,
                &[
                    &number(0, 5),
                    &number(1, 14),
                    &der(0xa2, &[&der(3, &[&[0; 5]])]),
                    &der(0xa3, &[&ticket]),
                    &proof,
                ],
            )],
        );
        der(0x60, &[&der(6, &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2]]), &[1, 0], &request])
    }

    #[test]
    fn ticket_and_encrypted_parts_are_found() {
        let token = token(18, 300);
        for (token, described) in
            [(&token, "aes256-cts-hmac-sha1-96"), (&self::token(23, 10), "arcfour-hmac")]
        {
            let ticket = Ticket::of_token(token).unwrap().to_string();
            assert_eq!(
                ticket,
                format!("a ticket for nfs/fs1.example.org@EXAMPLE.ORG ({described}, kvno 7)")
            );
        }
        let request = Request::of_token(&token).unwrap();
        assert_eq!(request.authenticator, (17, &b"sealed"[..]));
        assert!(
            request.ticket[0] == 0x61
                && request.ticket.len() > 300
                && element_any(request.ticket).unwrap().2.is_empty()
        );
        for len in 0..token.len() {
            assert!(
                Ticket::of_token(&token[..len]).is_none()
                    && Request::of_token(&token[..len]).is_none(),
                "{len}"
            );
        }
    }

    fn authenticator(time: &[u8]) -> Vec<u8> {
        der(
            0x62,
            &[&der(0x30, &[&der(0xa0, &[&der(2, &[&[5]])]), &der(0xa5, &[&der(0x18, &[time])])])],
        )
    }

    #[test]
    fn authenticator_time_is_parsed() {
        for (text, made) in [
            ("19700101000000Z", 0),
            ("20000229235959Z", 951_868_799),
            ("20000301000000Z", 951_868_800),
            ("20260101000000Z", 1_767_225_600),
            ("21001231120000Z", 4_133_937_600),
        ] {
            assert_eq!(made_s(&authenticator(text.as_bytes())), Some(made), "{text}");
        }
        for text in [
            "",
            "19691231235959Z",
            "20261301000000Z",
            "20260001000000Z",
            "20260100000000Z",
            "2026010100000Z",
            "20260101000000",
            "2026-1-1000000Z",
        ] {
            assert_eq!(made_s(&authenticator(text.as_bytes())), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, at in 0usize..400, value: u8) {
            let _ = (Ticket::of_token(&bytes), Request::of_token(&bytes).is_some(), made_s(&bytes), made_s(&authenticator(&bytes)));
            let mut token = token(18, 300);
            let len = token.len();
            token[at % len] = value;
            let _ = (Ticket::of_token(&token).map(|ticket| ticket.to_string()), Request::of_token(&token).is_some());
        }
    }
}
