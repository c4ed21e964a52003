//! The audit record and its binary encoding.

pub mod access;
mod fields;
mod truncate;

use std::net::IpAddr;

use crate::operations::{self, number::ACCESS};
use fields::{Field, FieldDecoder, FieldEncoder};
use truncate::Limit;
pub use truncate::truncate_path;
pub(crate) use truncate::{shorten_path, utf8_prefix};

/// The kind of a record. Each kind has operation numbers of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// An operation on a file, by its NFSv4 number (RFC 7862 §15).
    #[default]
    Operation = 1,
    /// A call refused before it became an operation, by its [`Refusal`].
    Refusal = 2,
    /// An action of an administrator or of the service, by its [`Act`].
    Administrative = 3,
    /// Lost records: `gap` is their number, `open_ns` the duration of the loss.
    Gap = 4,
    /// An event of the host's kernel, by the kernel's record type.
    Host = 5,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Refusal {
    /// No context, an invalid ticket, or invalid credentials.
    Authentication = 1,
    /// The export does not allow the security flavour.
    Flavour = 2,
    /// A message that was received before.
    Replay = 3,
    /// A message with a wrong checksum.
    Altered = 4,
    /// The ticket or the security context has expired.
    Expired = 5,
    /// A filehandle that this server never issued, perhaps to leave the export.
    Handle = 6,
    /// The client's address is not allowed, or has too many connections.
    Client = 7,
    /// Summary of refusals over the rate limit. `gap` is their number.
    Many = 8,
}

/// Actions of administrators and of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Act {
    /// The service started.
    Start = 1,
    /// The service stopped.
    Stop = 2,
    /// The configuration was read again.
    Reload = 3,
    /// The audit rules changed.
    Rules = 4,
    /// The trail's key advanced at the end of a segment.
    Key = 5,
    /// The policy became weaker, or rules were removed.
    TurnedDown = 6,
    /// The trail was not closed cleanly and was repaired.
    Recovered = 7,
    /// Retention removed old segments.
    Pruned = 8,
    /// A published tree changed its revision, or is no longer shown.
    Revision = 9,
    /// A batch job was registered or changed, for which tickets may be minted.
    JobBegun = 10,
    /// A batch job has ended.
    JobEnded = 11,
    /// Tickets were minted in a user's name for a job on a node.
    TicketMinted = 12,
    /// Tickets, or a job, were refused.
    TicketRefused = 13,
    /// A node has removed the tickets of a job, or they have ended.
    TicketWithdrawn = 14,
    /// An administrator gave an order to the running service.
    Managed = 15,
}

macro_rules! numbered {
    ($type:ident: $($variant:ident $text:literal,)*) => {
        impl $type {
            /// In the order of their numbers.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// `None` for an unknown number.
            pub fn from_number(number: u16) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u16 == number)
            }

            /// The name in text and JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $text,)*
                }
            }
        }
    };
}

numbered! { Refusal: Authentication "authentication", Flavour "flavour", Replay "replay", Altered "altered", Expired "expired", Handle "handle", Client "client", Many "many", }
numbered! { Act: Start "start", Stop "stop", Reload "reload", Rules "rules", Key "key", TurnedDown "turned-down", Recovered "recovered", Pruned "pruned", Revision "revision", JobBegun "job-begin", JobEnded "job-end", TicketMinted "ticket-minted", TicketRefused "ticket-refused", TicketWithdrawn "ticket-withdrawn", Managed "managed", }
numbered! { Class: Operation "operation", Refusal "refusal", Administrative "administrative", Gap "gap", Host "host", }
numbered! { Flavour: None "none", Sys "sys", Krb5 "krb5", Krb5i "krb5i", Krb5p "krb5p", Local "local", }

/// How the caller was authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Flavour {
    /// AUTH_NONE, or no RPC call.
    #[default]
    None = 0,
    /// AUTH_SYS: the client states the user.
    Sys = 1,
    /// Kerberos: authentication.
    Krb5 = 2,
    /// Kerberos: authentication and integrity.
    Krb5i = 3,
    /// Kerberos: authentication, integrity and privacy.
    Krb5p = 4,
    /// A user of this machine, as its kernel reports.
    Local = 5,
}

/// The one list of the fields: structure, encoding, and the texts that are truncated. After minor
/// follow the optional fields, in the order of docs/formats/audit.md. A text has a name for people
/// and a limit. A path `below` another field is stored in two parts.
macro_rules! fields {
    (
        $($(#[$fixed_meta:meta])* pub $fixed:ident: $fixed_type:ty;)*
        optional:
        $(
            $(#[$meta:meta])*
            pub $field:ident: $type:ty $(= $label:literal, $limit:expr $(, below $base:ident)?)?;
        )*
    ) => {
        /// Unknown fields are `None` or empty.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Record<'a> {
            $($(#[$fixed_meta])* pub $fixed: $fixed_type,)*
            $($(#[$meta])* pub $field: $type,)*
        }

        impl<'a> Record<'a> {
            #[inline]
            fn encode_optional(&self, encoder: &mut FieldEncoder<'_>) {
                $(fields!(@encode self, $field, encoder $($(, $base)?)?);)*
            }

            /// `scratch` holds the path if it is stored in two parts.
            #[inline]
            fn decode_optional(
                decoder: &mut FieldDecoder<'a>,
                scratch: &'a mut Vec<u8>,
                Fixed { $($fixed),* }: Fixed,
            ) -> Result<Self, RecordError> {
                $(let $field = fields!(@decode decoder, scratch $($(, $base)?)?);)*
                Ok(Self { $($fixed,)* $($field),* })
            }

            fn texts(&self) -> impl Iterator<Item = (&'static str, &'a [u8], Limit)> {
                [$($(($label, self.$field, $limit),)?)*].into_iter()
            }

            fn texts_mut(&mut self) -> impl Iterator<Item = &mut &'a [u8]> {
                [$($(fields!(@text &mut self.$field, $label),)?)*].into_iter()
            }
        }

        struct Fixed { $($fixed: $fixed_type),* }

        const FIELD_COUNT: u32 = 0 $(+ 1 $($(+ { let _ = stringify!($base); 1 })?)?)*;
    };
    (@encode $record:ident, $field:ident, $encoder:ident) => { $record.$field.encode($encoder) };
    (@encode $record:ident, $field:ident, $encoder:ident, $base:ident) => {
        $encoder.path($record.$field, $record.$base)
    };
    (@decode $decoder:ident, $scratch:ident) => { Field::decode($decoder)? };
    (@decode $decoder:ident, $scratch:ident, $base:ident) => { $decoder.path($base, $scratch)? };
    (@text $text:expr, $label:literal) => { $text };
}

fields! {
    /// Number in the trail, from 1, which the writer assigns.
    pub seq: u64;
    /// Nanoseconds since 1970.
    pub time_ns: u64;
    /// What the record is about.
    pub class: Class;
    /// The operation, refusal or act, by number.
    pub operation: u16;
    /// How the caller was authenticated.
    pub flavour: Flavour;
    /// Minor version of NFSv4.
    pub minor: u8;
    optional:
    /// 0 or an nfsstat4 (RFC 8881 §15.1).
    pub result: u32;
    /// Kerberos principal: `alice@EXAMPLE.ORG`.
    pub principal: &'a [u8] = "principal", Limit::Text;
    /// Encryption type of the security context (RFC 3961).
    pub enctype: Option<u32>;
    /// The operation ran as this user.
    pub uid: Option<u32>;
    /// The operation ran as this group.
    pub gid: Option<u32>;
    /// Of the client.
    pub address: Option<IpAddr>;
    /// TCP port of the client.
    pub port: Option<u16>;
    /// The client's host name, if known.
    pub client: &'a [u8] = "client", Limit::Text;
    /// Path as in the list of exports.
    pub export: &'a [u8] = "export", Limit::Path;
    /// Path of the object on the server at the time of the operation.
    pub path: &'a [u8] = "path", Limit::Path, below export;
    /// The new path of a rename or link.
    pub path2: &'a [u8] = "new path", Limit::Path;
    /// File id within the export.
    pub file: &'a [u8] = "file id", Limit::Bytes(TEXT_LEN_MAX);
    /// Bits of [`access`].
    pub requested: Option<u32>;
    /// Bits of [`access`].
    pub granted: Option<u32>;
    /// Bytes.
    pub offset: Option<u64>;
    /// Bytes of this operation, or since the open.
    pub read: Option<u64>;
    /// Bytes of this operation, or since the open.
    pub written: Option<u64>;
    /// Nanoseconds of the open, or of the loss of records.
    pub open_ns: Option<u64>;
    /// Number of lost records.
    pub gap: Option<u64>;
    /// Key of the rule that selected the record.
    pub key: &'a [u8] = "key", Limit::Text;
    /// Further facts, as text.
    pub detail: &'a [u8] = "detail", Limit::Text;
    /// Number since the server's start.
    pub connection: Option<u64>;
    /// Transaction id of the RPC call.
    pub xid: Option<u32>;
    /// Thread id of a local caller.
    pub pid: Option<u32>;
    /// loginuid, which a change of user does not alter. `u32::MAX`: the user never logged in.
    pub login: Option<u32>;
    /// The mode that SETATTR sets.
    pub mode: Option<u32>;
    /// Protection below RPC (RFC 9289): 1 TLS, 2 TLS with a client certificate.
    pub transport: Option<u32>;
    /// SHA-256 of the client's certificate.
    pub fingerprint: &'a [u8] = "fingerprint", Limit::Bytes(FINGERPRINT_LEN);
    /// Name in the client's certificate.
    pub certificate: &'a [u8] = "certificate", Limit::Text;
}

/// Types of the kernel's records that have the errno of a system call.
const HOST_SYSCALL: u16 = 1300;
const HOST_URINGOP: u16 = 1336;
/// NFS4ERR_ACCESS (RFC 8881 §15.1).
const DENIED: u32 = 13;
pub(crate) const PATH_LEN_MAX: usize = 4096;
/// Bytes of any other text in a record. Longer text loses its end.
pub const TEXT_LEN_MAX: usize = 1024;
const FIXED_LEN: usize = 8 + 8 + 1 + 1 + 1 + 2 + 4;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum RecordError {
    #[error("the record is truncated")]
    Cut,
    #[error("the record has {0} that this version does not know")]
    Unknown(&'static str),
    #[error("extra bytes follow the record")]
    Longer,
}

impl<'a> Record<'a> {
    /// Protection below RPC as in exports(5): tls or mtls.
    pub fn xprtsec(&self) -> Option<&'static str> {
        self.transport.map(|transport| {
            ["none", "tls", "mtls"].get(transport as usize).copied().unwrap_or("unknown")
        })
    }

    /// The user that rules call auid: the login user, or else the acting user.
    pub fn auid(&self) -> Option<u32> {
        self.login.or(self.uid)
    }

    /// Effective status: an ACCESS that grants no read, lookup or execute bit counts as refused,
    /// because the client then fails with EACCES. Clients always request write bits.
    pub fn status(&self) -> u32 {
        let is_access =
            self.result == 0 && self.operation == ACCESS && self.class == Class::Operation;
        let requested = self.requested.unwrap_or(0) & access::USE;
        match self.granted {
            Some(granted) if is_access && requested != 0 && granted & requested == 0 => DENIED,
            _ => self.result,
        }
    }

    /// The effective status as an errno; 0 for success.
    pub fn errno(&self) -> i32 {
        match self.class {
            Class::Host => self.result as i32,
            _ => operations::errno(self.status()),
        }
    }

    /// `ENOENT`, or the number if the errno has no name here. `None` for success, and if only the
    /// failure is known.
    pub fn errno_name(&self) -> Option<String> {
        let is_known = match self.class {
            Class::Host => matches!(self.operation, HOST_SYSCALL | HOST_URINGOP),
            _ => true,
        };
        (is_known && self.errno() != 0).then(|| {
            operations::errno_name(self.errno())
                .map_or_else(|| self.errno().to_string(), str::to_owned)
        })
    }

    /// Truncates long text, and says so in the detail.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if truncate::is_too_long(self) {
            return truncate::with_truncated_texts(self, |record| record.encode(out));
        }
        let start = out.len();
        // One allocation of the maximum length is cheaper than a check at each field.
        out.resize(start + self.body_len_max(), 0);
        let mut encoder = FieldEncoder { out: &mut out[start..], len: 0, presence: 0, bit: 0 };
        encoder.bytes(&self.seq.to_le_bytes());
        encoder.bytes(&self.time_ns.to_le_bytes());
        encoder.bytes(&[self.class as u8, self.flavour as u8, self.minor]);
        encoder.bytes(&self.operation.to_le_bytes());
        let presence_at = encoder.len;
        encoder.bytes(&[0; 4]);
        self.encode_optional(&mut encoder);
        let (presence, len) = (encoder.presence, encoder.len);
        encoder.out[presence_at..presence_at + 4].copy_from_slice(&presence.to_le_bytes());
        out.truncate(start + len);
    }

    fn body_len_max(&self) -> usize {
        let texts: usize = self.texts().map(|(_, text, _)| text.len()).sum();
        FIXED_LEN + FIELD_COUNT as usize * VARINT_LEN_MAX + ADDRESS_LEN_MAX + texts
    }

    /// `scratch` holds the path if it is stored in two parts.
    pub fn decode(body: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Record<'a>, RecordError> {
        let (fixed, rest) = body.split_at_checked(FIXED_LEN).ok_or(RecordError::Cut)?;
        let mut r = crate::frame::FieldReader(fixed);
        let (seq, time_ns) = (r.u64(), r.u64());
        let [class, flavour, minor] = r.take();
        let operation = u16::from_le_bytes(r.take());
        let presence = u32::from_le_bytes(r.take());
        if presence >> FIELD_COUNT != 0 {
            return Err(RecordError::Unknown("a field"));
        }
        let mut decoder = FieldDecoder { rest, presence };
        let fixed = Fixed {
            seq,
            time_ns,
            class: Class::from_number(class.into()).ok_or(RecordError::Unknown("a class"))?,
            operation,
            flavour: Flavour::from_number(flavour.into())
                .ok_or(RecordError::Unknown("a flavour"))?,
            minor,
        };
        let record = Record::decode_optional(&mut decoder, scratch, fixed)?;
        if !decoder.rest.is_empty() {
            return Err(RecordError::Longer);
        }
        Ok(record)
    }
}

/// Without decoding the rest; `None` if the body is too short.
pub fn seq_and_time(body: &[u8]) -> Option<(u64, u64)> {
    let (seq, rest) = body.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*seq), u64::from_le_bytes(*rest.first_chunk::<8>()?)))
}

pub(crate) fn class_of(body: &[u8]) -> Option<u8> {
    body.get(16).copied()
}

pub(crate) fn set_seq(body: &mut [u8], seq: u64) {
    body[..8].copy_from_slice(&seq.to_le_bytes());
}

const FINGERPRINT_LEN: usize = 32;
const VARINT_LEN_MAX: usize = 10;
const ADDRESS_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests;
