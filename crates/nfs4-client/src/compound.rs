use vouch_nfs4::op::*;
use vouch_nfs4::{Attributes, Bitmap, Filehandle, Name};
use vouch_xdr::Writer;

use crate::{CallKind, Client, Error, Reply};

#[must_use = "a compound does nothing until it is sent"]
pub struct Compound<'c> {
    client: &'c Client,
    operations: Writer,
    count: u32,
    kind: CallKind,
}

impl<'c> Compound<'c> {
    pub(crate) fn new(client: &'c Client, kind: CallKind) -> Self {
        Self { client, operations: Writer::new(), count: 0, kind }
    }

    /// The server caches the reply: a retry after a lost connection is not executed twice.
    pub fn cached(mut self) -> Self {
        if let CallKind::Session { cache } = &mut self.kind {
            *cache = true;
        }
        self
    }

    pub fn op(mut self, args: &Args<'_>) -> Self {
        args.encode(&mut self.operations);
        self.count += 1;
        self
    }

    pub fn putfh(self, handle: &Filehandle) -> Self {
        self.op(&Args::Putfh(PutfhArgs { handle: *handle }))
    }

    pub fn putrootfh(self) -> Self {
        self.op(&Args::Putrootfh)
    }

    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(&Args::Lookup(LookupArgs { name: Name(name) }))
    }

    pub fn getfh(self) -> Self {
        self.op(&Args::Getfh)
    }

    pub fn savefh(self) -> Self {
        self.op(&Args::Savefh)
    }

    pub fn getattr(self, wanted: Bitmap) -> Self {
        self.op(&Args::Getattr(GetattrArgs { wanted }))
    }

    /// Attributes without a value stay unchanged.
    pub fn setattr(self, stateid: vouch_nfs4::Stateid, attributes: &Attributes<'_>) -> Self {
        let mut packed = Writer::new();
        let attrs = pack(attributes, &mut packed);
        self.op(&Args::Setattr(SetattrArgs { stateid, attrs }))
    }

    pub async fn send(self) -> Result<Reply, Error> {
        self.client.call(self.kind, self.operations.into_bytes(), self.count).await
    }
}

pub(crate) fn pack<'a>(attributes: &Attributes<'_>, w: &'a mut Writer) -> vouch_nfs4::Fattr<'a> {
    attributes.encode(Attributes::KNOWN, w);
    let mut r = vouch_xdr::Reader::new(w.as_bytes());
    vouch_nfs4::Wire::decode(&mut r).expect("encoded attributes can be decoded")
}
