//! The fsinfo: the signed root of a published tree (figure 3 of the paper).

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::{Purpose, SecretKey, SigningCert};
use crate::{BlockHandle, HostId, Inode, Iv};

/// The version of the format; another one is refused.
pub const FORMAT_VERSION: u32 = 1;

/// Longest tag of a revision.
pub const TAG_LEN_MAX: usize = 255;

/// Longest encoded fsinfo. Its only long parts are the root inode's inline xattrs (1 KiB) and the
/// tag.
pub const FSINFO_LEN_MAX: usize = 8 * 1024;

/// Longest encoded signed fsinfo.
pub const SIGNED_LEN_MAX: usize = FSINFO_LEN_MAX + 512;

/// What one revision of a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fsinfo {
    /// The tree's own HOSTID, so that an fsinfo can't be shown for another tree of the same signing
    /// key.
    pub hostid: HostId,
    /// Counts up by one with each publication, from 1.
    pub revision: u64,
    /// When it was signed, in seconds since 1970.
    pub start: u64,
    /// How long it is valid from then, in seconds: the publisher's promise of the next one.
    pub duration_s: u32,
    /// The key of all handles.
    pub iv: Iv,
    /// The root directory.
    pub root: Inode,
    /// The frame of the signed fsinfo before this one; `None` in revision 1.
    pub previous: Option<BlockHandle>,
    /// What the tree holds.
    pub counts: Counts,
    /// The publisher's name for this revision, or empty.
    pub tag: String,
}

/// How much a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Names of regular files.
    pub files: u64,
    /// Directories, the root among them.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub others: u64,
    /// Bytes of all regular files, by their sizes, each name counted.
    pub bytes: u64,
    /// Names whose file has extended attributes.
    pub with_xattrs: u64,
}

impl Fsinfo {
    /// The first second at which it is no longer valid, by its own word.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.duration_s.into())
    }
}

impl Xdr for Counts {
    fn encode(&self, w: &mut Writer) {
        for n in [self.files, self.directories, self.symlinks, self.others, self.bytes, self.with_xattrs] {
            w.u64(n);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { files: r.u64()?, directories: r.u64()?, symlinks: r.u64()?, others: r.u64()?, bytes: r.u64()?, with_xattrs: r.u64()? })
    }
}

impl Xdr for Fsinfo {
    fn encode(&self, w: &mut Writer) {
        w.u32(FORMAT_VERSION);
        self.hostid.encode(w);
        w.u64(self.revision);
        w.u64(self.start);
        w.u32(self.duration_s);
        w.opaque_fixed(self.iv.as_bytes());
        self.root.encode(w);
        w.optional(self.previous.as_ref(), |w, handle| w.opaque_fixed(handle.as_bytes()));
        self.counts.encode(w);
        w.opaque(self.tag.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            FORMAT_VERSION => {}
            value => return Err(XdrError::Unknown { what: "format version", value }),
        }
        let info = Self {
            hostid: HostId::decode(r)?,
            revision: r.u64()?,
            start: r.u64()?,
            duration_s: r.u32()?,
            iv: Iv::from_bytes(r.opaque_fixed()?),
            root: Inode::decode(r)?,
            previous: r.optional(|r| Ok(BlockHandle::from_bytes(r.opaque_fixed()?)))?,
            counts: Counts::decode(r)?,
            tag: r.string(TAG_LEN_MAX)?.to_owned(),
        };
        if !info.root.is_directory() {
            return Err(XdrError::Invalid("root that is no directory"));
        }
        if info.revision == 0 || (info.revision == 1) != info.previous.is_none() {
            return Err(XdrError::Invalid("revision without its predecessor"));
        }
        Ok(info)
    }
}

/// An fsinfo's bytes as they were signed, the signature, and the signing key's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedFsinfo {
    fsinfo: Vec<u8>,
    cert: SigningCert,
    signature: [u8; 64],
}

impl SignedFsinfo {
    /// Signs `fsinfo` by the key that `cert` certifies.
    ///
    /// # Panics
    /// If `key` is not the certified one or the certificate is another root's.
    pub fn sign(fsinfo: &Fsinfo, key: &SecretKey, cert: SigningCert) -> Self {
        assert_eq!(key.public(), cert.signing, "the key is the one that the certificate names");
        assert_eq!(fsinfo.hostid, cert.root.hostid(), "the certificate is of the tree's own root key");
        let fsinfo = fsinfo.to_xdr();
        let signature = key.sign(Purpose::Fsinfo, &fsinfo);
        Self { fsinfo, cert, signature }
    }

    /// The certificate; not yet verified.
    pub const fn cert(&self) -> &SigningCert {
        &self.cert
    }

    /// The fsinfo whoever signed it: for walking what a database holds, never for believing it.
    pub fn unverified(&self) -> Result<Fsinfo, XdrError> {
        Fsinfo::from_xdr(&self.fsinfo)
    }

    /// The fsinfo, if the signatures hold from the root key of `hostid` down. Says nothing about
    /// time or revocation: for that see [`crate::verify`].
    pub fn open(&self, hostid: &HostId) -> Result<Fsinfo, SignatureError> {
        if !self.cert.is_signed_by(hostid) {
            return Err(SignatureError::Certificate);
        }
        if !self.cert.signing.verify(Purpose::Fsinfo, &self.fsinfo, &self.signature) {
            return Err(SignatureError::Signature);
        }
        let fsinfo = Fsinfo::from_xdr(&self.fsinfo)?;
        if fsinfo.hostid != *hostid {
            return Err(SignatureError::OtherTree(fsinfo.hostid));
        }
        Ok(fsinfo)
    }
}

/// Why a signed fsinfo is not the tree's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The signing key's certificate is not by the root key of the name.
    #[error("the signing key's certificate is not signed by the root key of this name")]
    Certificate,
    /// The signature does not fit the bytes.
    #[error("the fsinfo's signature does not fit")]
    Signature,
    /// Well signed, but for another tree.
    #[error("the fsinfo is that of {0}")]
    OtherTree(HostId),
    /// Well signed, but not of this format.
    #[error("the fsinfo is malformed: {0}")]
    Malformed(#[from] XdrError),
}

impl Xdr for SignedFsinfo {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.fsinfo);
        self.cert.encode(w);
        w.opaque_fixed(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { fsinfo: r.opaque(FSINFO_LEN_MAX)?.to_vec(), cert: SigningCert::decode(r)?, signature: r.opaque_fixed()? })
    }
}
