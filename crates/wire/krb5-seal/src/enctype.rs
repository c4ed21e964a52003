//! Encryption types, by their numbers in the IANA registry of Kerberos parameters.

/// An AES encryption type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Enctype {
    /// RFC 3962.
    Aes128CtsHmacSha1_96 = 17,
    /// RFC 3962.
    Aes256CtsHmacSha1_96 = 18,
    /// RFC 8009.
    Aes128CtsHmacSha256_128 = 19,
    /// RFC 8009.
    Aes256CtsHmacSha384_192 = 20,
}

impl Enctype {
    /// Weakest first.
    pub const ALL: [Enctype; 4] = [
        Enctype::Aes128CtsHmacSha1_96,
        Enctype::Aes256CtsHmacSha1_96,
        Enctype::Aes128CtsHmacSha256_128,
        Enctype::Aes256CtsHmacSha384_192,
    ];

    /// Bytes of a protocol key: 16 or 32.
    pub const fn key_len(self) -> usize {
        match self {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes128CtsHmacSha256_128 => 16,
            Enctype::Aes256CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha384_192 => 32,
        }
    }

    /// Bytes of a truncated checksum: 12, 16 or 24.
    pub(crate) const fn checksum_len(self) -> usize {
        match self {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => 12,
            Enctype::Aes128CtsHmacSha256_128 => 16,
            Enctype::Aes256CtsHmacSha384_192 => 24,
        }
    }

    pub(crate) const fn mac_key_len(self) -> usize {
        match self {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes128CtsHmacSha256_128 => 16,
            Enctype::Aes256CtsHmacSha1_96 => 32,
            Enctype::Aes256CtsHmacSha384_192 => 24,
        }
    }

    /// As in krb5.conf and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Enctype::Aes128CtsHmacSha1_96 => "aes128-cts-hmac-sha1-96",
            Enctype::Aes256CtsHmacSha1_96 => "aes256-cts-hmac-sha1-96",
            Enctype::Aes128CtsHmacSha256_128 => "aes128-cts-hmac-sha256-128",
            Enctype::Aes256CtsHmacSha384_192 => "aes256-cts-hmac-sha384-192",
        }
    }

    pub(crate) const fn bit(self) -> u8 {
        1 << (self as i32 - 17)
    }
}

impl std::fmt::Display for Enctype {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The number of an encryption type that this crate does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "enctype {0} is not one of aes128/256-cts-hmac-sha1-96, aes128-cts-hmac-sha256-128, aes256-cts-hmac-sha384-192"
)]
pub struct UnknownEnctype(pub i32);

impl TryFrom<i32> for Enctype {
    type Error = UnknownEnctype;

    fn try_from(number: i32) -> Result<Enctype, UnknownEnctype> {
        Enctype::ALL
            .into_iter()
            .find(|enctype| *enctype as i32 == number)
            .ok_or(UnknownEnctype(number))
    }
}
