//! A DNS client over TCP that verifies TXT records signed with Ed25519 (RFC 1035, 4034, 8080).

use std::path::Path;

use data_encoding::BASE64;
use ed25519_dalek::{Signature, VerifyingKey};

const TYPE_TXT: u16 = 16;
const TYPE_RRSIG: u16 = 46;
const CLASS_IN: u16 = 1;
const ALGORITHM_ED25519: u8 = 15;
/// Its fields before the signer's name.
const RRSIG_HEAD_LEN: usize = 18;

/// A signed zone.
pub struct Zone {
    /// In wire format, lower case.
    name: Vec<u8>,
    key: VerifyingKey,
}

impl Zone {
    /// Reads a DNSKEY record: `ZONE IN DNSKEY 257 3 15 KEY`.
    ///
    /// # Errors
    /// The file is unreadable or has no such record.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut words = text.split_whitespace();
        let name = words.next().map(wire_name).ok_or("no record")?;
        let key =
            words.skip_while(|word| *word != "15").nth(1).ok_or("no DNSKEY of algorithm 15")?;
        let key = BASE64.decode(key.as_bytes()).map_err(|error| error.to_string())?;
        let key = key.as_slice().try_into().map_err(|_| "a key of another length")?;
        Ok(Self { name, key: VerifyingKey::from_bytes(key).map_err(|error| error.to_string())? })
    }

    /// A query for the TXT record of `label` in the zone, with signatures, after its length.
    pub fn query(&self, id: u16, label: &str) -> Vec<u8> {
        let mut message = Vec::new();
        for field in [id, 0, 1, 0, 0, 1] {
            message.extend_from_slice(&field.to_be_bytes());
        }
        message.extend_from_slice(&self.owner(label));
        for field in [TYPE_TXT, CLASS_IN] {
            message.extend_from_slice(&field.to_be_bytes());
        }
        // OPT (RFC 6891), with the bit DO.
        message.extend_from_slice(&[0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0]);
        let len = u16::try_from(message.len()).expect("a query is short");
        [&len.to_be_bytes()[..], &message].concat()
    }

    /// The verified text of `label`, from a response.
    ///
    /// # Errors
    /// The response is malformed, has no such record, or its signature is wrong.
    pub fn verify(&self, label: &str, response: &[u8]) -> Result<Vec<u8>, &'static str> {
        let owner = self.owner(label);
        let (texts, signature) = answers(response, &owner)?;
        let (head, rest) = signature.split_at_checked(RRSIG_HEAD_LEN).ok_or("a short RRSIG")?;
        if head[..3] != [0, 16, ALGORITHM_ED25519] {
            return Err("a signature of another type or algorithm");
        }
        let bytes = rest.strip_prefix(self.name.as_slice()).ok_or("another signer")?;
        let bytes: &[u8; 64] = bytes.try_into().map_err(|_| "a signature of another length")?;
        // RFC 4034, section 3.1.8.1; the set has one record.
        let mut signed = [head, &self.name, &owner, &head[..2], &CLASS_IN.to_be_bytes()].concat();
        signed.extend_from_slice(&head[4..8]);
        signed.extend_from_slice(
            &u16::try_from(texts.len()).map_err(|_| "a long record")?.to_be_bytes(),
        );
        signed.extend_from_slice(texts);
        self.key
            .verify_strict(&signed, &Signature::from_bytes(bytes))
            .map_err(|_| "a wrong signature")?;
        Ok(texts.get(1..).ok_or("an empty record")?.to_vec())
    }

    fn owner(&self, label: &str) -> Vec<u8> {
        let len = u8::try_from(label.len()).expect("a label has at most 63 bytes");
        [&[len], label.as_bytes(), &self.name].concat()
    }
}

fn wire_name(text: &str) -> Vec<u8> {
    let mut name = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        name.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        name.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    name.push(0);
    name
}

/// The data of the TXT record and of its signature.
fn answers<'a>(response: &'a [u8], owner: &[u8]) -> Result<(&'a [u8], &'a [u8]), &'static str> {
    let short = "a short response";
    let head = response.get(..12).ok_or(short)?;
    if head[2] & 0x80 == 0 || head[3] & 0xf != 0 {
        return Err("not an answer");
    }
    let count = u16::from_be_bytes([head[6], head[7]]);
    let question_end = 12 + owner.len() + 4;
    if response.get(12..12 + owner.len()) != Some(owner) {
        return Err("an answer to another question");
    }
    let (mut at, mut texts, mut signature) = (question_end, None, None);
    for _ in 0..count {
        // The owner is a pointer to the question, whose name was compared.
        if response.get(at..at + 2) != Some(&[0xc0, 12][..]) {
            return Err("a record of another name");
        }
        let fields = response.get(at + 2..at + 12).ok_or(short)?;
        let len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
        let data = response.get(at + 12..at + 12 + len).ok_or(short)?;
        match u16::from_be_bytes([fields[0], fields[1]]) {
            TYPE_TXT if texts.is_none() => texts = Some(data),
            TYPE_RRSIG if signature.is_none() => signature = Some(data),
            _ => return Err("an unexpected record"),
        }
        at += 12 + len;
    }
    Ok((texts.ok_or("no TXT record")?, signature.ok_or("no signature")?))
}
