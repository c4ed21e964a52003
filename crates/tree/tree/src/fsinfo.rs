//! The fsinfo: the signed root of a published tree (SFSRO paper, figure 3).

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::{Purpose, SecretKey, Signature, SigningCert};
use crate::{BlockHandle, HostId, Inode, Iv};

pub(crate) const FORMAT_VERSION: u32 = 1;

/// Longest label of a revision, in bytes.
pub const TAG_LEN_MAX: usize = 255;

/// Attribute of the root directory with the publisher's message about the revision. A reader that
/// does not know it takes it for an attribute of the directory.
pub const MESSAGE_XATTR: &[u8] = b"user.vouch.message";

/// The long parts are inline xattrs of the root and the tag.
pub(crate) const FSINFO_LEN_MAX: usize = 8 * 1024;

/// Longest signed fsinfo in XDR, in bytes.
/// Two keys and two signatures of pairs take 7,800.
pub const SIGNED_LEN_MAX: usize = FSINFO_LEN_MAX + 8 * 1024;

/// The root of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fsinfo {
    /// Ties the fsinfo to one tree: a signing key may serve several.
    pub hostid: HostId,
    /// Starts at 1, plus one with each publication.
    pub revision: u64,
    /// Time of signing, seconds since 1970.
    pub start: u64,
    /// Validity from `start`. The publisher promises a newer revision by then.
    pub duration_s: u32,
    /// The key of all frame hashes of the tree.
    pub iv: Iv,
    /// The root directory.
    pub root: Inode,
    /// Frame of the previous signed fsinfo; `None` in revision 1.
    pub previous: Option<BlockHandle>,
    /// Totals of the tree.
    pub counts: Counts,
    /// The publisher's label; may be empty.
    pub tag: String,
}

/// Numbers of names in a revision, and of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Names of regular files.
    pub files: u64,
    /// Includes the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub others: u64,
    /// Sizes of regular files; each hard link counts.
    pub bytes: u64,
    /// Names with extended attributes.
    pub with_xattrs: u64,
}

impl core::ops::AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.others += other.others;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.with_xattrs += other.with_xattrs;
    }
}

impl Fsinfo {
    /// The publisher's message about this revision.
    pub fn message(&self) -> Option<String> {
        let crate::BlobBody::Inline(bytes) = &self.root.xattrs.body else { return None };
        let set = crate::xattr::Xattrs::from_xdr(bytes).ok()?;
        set.get(MESSAGE_XATTR).and_then(|message| String::from_utf8(message.to_vec()).ok())
    }

    /// End of the validity, seconds since 1970.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.duration_s.into())
    }
}

impl Xdr for Counts {
    fn encode(&self, w: &mut Writer) {
        for n in
            [self.files, self.directories, self.symlinks, self.others, self.bytes, self.with_xattrs]
        {
            w.u64(n);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            files: r.u64()?,
            directories: r.u64()?,
            symlinks: r.u64()?,
            others: r.u64()?,
            bytes: r.u64()?,
            with_xattrs: r.u64()?,
        })
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
            return Err(XdrError::Invalid("root is not a directory"));
        }
        if info.revision == 0 || (info.revision == 1) != info.previous.is_none() {
            return Err(XdrError::Invalid("revision without its predecessor"));
        }
        Ok(info)
    }
}

/// An [`Fsinfo`] with its signature and the signing key's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedFsinfo {
    fsinfo: Vec<u8>,
    cert: SigningCert,
    signature: Signature,
}

impl SignedFsinfo {
    /// # Panics
    /// `key` is not the certified key, or the certificate belongs to another root key.
    pub fn sign(fsinfo: &Fsinfo, key: &SecretKey, cert: SigningCert) -> Self {
        assert_eq!(key.public(), cert.signing, "the signing key matches its certificate");
        assert_eq!(
            fsinfo.hostid,
            cert.root.hostid(),
            "the tree's own root key issued the certificate"
        );
        let fsinfo = fsinfo.to_xdr();
        let signature = key.sign(Purpose::Fsinfo, &fsinfo);
        Self { fsinfo, cert, signature }
    }

    /// Not verified.
    pub const fn cert(&self) -> &SigningCert {
        &self.cert
    }

    /// Not verified.
    pub fn into_cert(self) -> SigningCert {
        self.cert
    }

    /// Checks no signature. Only for walking frames of a trusted database.
    pub fn unverified(&self) -> Result<Fsinfo, XdrError> {
        Fsinfo::from_xdr(&self.fsinfo)
    }

    /// Verifies the signatures from the root key of `hostid` down. Does not check time or
    /// revocation: see [`crate::verify`].
    pub fn open(&self, hostid: &HostId) -> Result<Fsinfo, SignatureError> {
        self.open_with(hostid, &mut CertCache::default())
    }

    /// Does not verify again a certificate that `cache` knows.
    pub fn open_with(
        &self,
        hostid: &HostId,
        cache: &mut CertCache,
    ) -> Result<Fsinfo, SignatureError> {
        if !cache.is_signed_by(&self.cert, hostid) {
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

/// The certificate of one tree that was verified last.
#[derive(Debug, Clone, Default)]
pub struct CertCache(Option<(HostId, SigningCert)>);

impl CertCache {
    fn is_signed_by(&mut self, cert: &SigningCert, hostid: &HostId) -> bool {
        let is_known = self.0.as_ref().is_some_and(|known| (&known.0, &known.1) == (hostid, cert));
        if !is_known && cert.is_signed_by(hostid) {
            self.0 = Some((*hostid, cert.clone()));
            return true;
        }
        is_known
    }
}

/// Why a signed fsinfo does not belong to a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum SignatureError {
    #[error("the signing key's certificate is not signed by the root key of this name")]
    Certificate,
    #[error("the signature of the fsinfo is invalid")]
    Signature,
    #[error("the fsinfo belongs to the tree {0}")]
    OtherTree(HostId),
    #[error("the fsinfo is malformed: {0}")]
    Malformed(#[from] XdrError),
}

impl Xdr for SignedFsinfo {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.fsinfo);
        self.cert.encode(w);
        self.signature.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let fsinfo = r.opaque(FSINFO_LEN_MAX)?.to_vec();
        let cert = SigningCert::decode(r)?;
        let signature = Signature::decode(r, &cert.signing)?;
        Ok(Self { fsinfo, cert, signature })
    }
}
