use std::sync::Arc;

use vouch_nfs4::op::*;
use vouch_nfs4::{Attributes, Bitmap, Filehandle, Name};
use vouch_xdr::Writer;

use crate::{CallKind, Client, Error, Reply};

/// A COMPOUND in the making: operations are appended, then it is sent.
#[must_use = "a compound does nothing until it is sent"]
pub struct Compound<'c> {
    client: &'c Client,
    operations: Writer,
    count: u32,
    kind: CallKind,
    caller: Option<Arc<[u8]>>,
}

impl<'c> Compound<'c> {
    pub(crate) fn new(client: &'c Client, kind: CallKind) -> Self {
        Self { client, operations: Writer::new(), count: 0, kind, caller: None }
    }

    /// The server caches the reply: a retry after a lost connection is not executed twice.
    pub fn cached(mut self) -> Self {
        if let CallKind::Session { cache } = &mut self.kind {
            *cache = true;
        }
        self
    }

    /// Sends the call with this AUTH_SYS credential ([`AuthSys`](vouch_oncrpc::AuthSys), encoded)
    /// instead of the session's. Has no effect under RPCSEC_GSS.
    pub fn as_caller(mut self, caller: Option<&Arc<[u8]>>) -> Self {
        self.caller = caller.cloned();
        self
    }

    /// Appends any operation.
    pub fn op(mut self, args: &Args<'_>) -> Self {
        args.encode(&mut self.operations);
        self.count += 1;
        self
    }

    /// Sets the current filehandle.
    pub fn putfh(self, handle: &Filehandle) -> Self {
        self.op(&Args::Putfh(PutfhArgs { handle: *handle }))
    }

    /// Sets the current filehandle to the root of the exports.
    pub fn putrootfh(self) -> Self {
        self.op(&Args::Putrootfh)
    }

    /// Looks a name up in the current directory.
    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(&Args::Lookup(LookupArgs { name: Name(name) }))
    }

    /// Returns the current filehandle.
    pub fn getfh(self) -> Self {
        self.op(&Args::Getfh)
    }

    /// Saves the current filehandle, for operations with two.
    pub fn savefh(self) -> Self {
        self.op(&Args::Savefh)
    }

    /// Returns attributes of the current object.
    pub fn getattr(self, wanted: Bitmap) -> Self {
        self.op(&Args::Getattr(GetattrArgs { wanted }))
    }

    /// Attributes without a value stay unchanged.
    pub fn setattr(self, stateid: vouch_nfs4::Stateid, attributes: &Attributes<'_>) -> Self {
        let mut packed = Writer::new();
        let attrs = pack(attributes, &mut packed);
        self.op(&Args::Setattr(SetattrArgs { stateid, attrs }))
    }

    /// Sends the COMPOUND and waits for the reply. Reconnects and repeats it if needed.
    pub async fn send(self) -> Result<Reply, Error> {
        let operations = EncodedOperations {
            kind: self.kind,
            bytes: self.operations.into_bytes(),
            count: self.count,
            caller: self.caller,
        };
        self.client.call(operations).await
    }
}

/// The operations of a call, and who calls.
pub(crate) struct EncodedOperations {
    pub(crate) kind: CallKind,
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
    pub(crate) caller: Option<Arc<[u8]>>,
}

pub(crate) fn pack<'a>(attributes: &Attributes<'_>, w: &'a mut Writer) -> vouch_nfs4::Fattr<'a> {
    attributes.encode(Attributes::KNOWN, w);
    let mut r = vouch_xdr::Reader::new(w.as_bytes());
    vouch_nfs4::Wire::decode(&mut r).expect("encoded attributes can be decoded")
}
