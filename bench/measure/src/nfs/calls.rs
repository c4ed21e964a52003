//! Parts of calls that several sources share.

use vouch_nfs4::op::{
    Args, OpenArgs, OpenClaim, OpenHow, PutfhArgs, Results, ShareAccess, ShareDeny,
};
use vouch_nfs4::{Bytes, ClientId, Filehandle, OwnerSeq, StateOwner, Stateid};
use vouch_nfs4_client::{CallBuilder, Error, ReplyBody};
use vouch_xdr::Writer;

#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    pub(super) handle: Filehandle,
    pub(super) stateid: Stateid,
}

pub(super) fn putfh(handle: &Filehandle, call: &mut CallBuilder, w: &mut Writer) {
    call.op(w, &Args::Putfh(PutfhArgs { handle: *handle }));
}

/// Declines delegations, so that each file costs all its calls. One open-owner, as Linux has one
/// for each user.
pub(super) fn open_args<'a>(
    how: OpenHow<'a>,
    access: ShareAccess,
    claim: OpenClaim<'a>,
) -> Args<'a> {
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"a user") };
    let access = ShareAccess(access.0 | ShareAccess::WANT_NO_DELEG.0);
    Args::Open(OpenArgs { seq: OwnerSeq(0), access, deny: ShareDeny(0), owner, how, claim })
}

pub(super) fn opened(body: &mut ReplyBody<'_>) -> Result<Opened, Error> {
    let Results::Open(Ok(ok)) = body.next_ok()? else {
        return Err(Error::Mismatch("expected the result of OPEN"));
    };
    let Results::Getfh(Ok(got)) = body.next_ok()? else {
        return Err(Error::Mismatch("expected the result of GETFH"));
    };
    Ok(Opened { handle: got.handle, stateid: ok.stateid })
}

pub(super) fn packed_mode(mode: u32) -> Vec<u8> {
    use vouch_nfs4::Attributes;
    let mut w = Writer::new();
    Attributes { mode: Some(mode), ..Attributes::default() }.encode(Attributes::KNOWN, &mut w);
    w.into_bytes()
}

pub(super) fn unpacked(packed: &[u8]) -> vouch_nfs4::Fattr<'_> {
    vouch_nfs4::Wire::decode(&mut vouch_xdr::Reader::new(packed))
        .expect("encoded attributes can be decoded")
}
