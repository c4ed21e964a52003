use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{self, Args};
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, CallbackSec, ClientId, ClientOwner, Cookie, CreateSeq, Fattr,
    Filehandle, List, Name, NetAddr, OwnerSeq, StateOwner, StateProtect, Stateid, Verifier,
    Wire as _,
};
use vouch_xdr::{Reader, Writer};

pub(crate) struct Packed {
    bytes: Vec<u8>,
}

impl Packed {
    pub(crate) fn new(wanted: &[u32], attributes: &Attributes<'_>) -> Self {
        let mut w = Writer::new();
        attributes.encode(Bitmap::of(wanted), &mut w);
        Packed { bytes: w.into_bytes() }
    }

    pub(crate) fn one(number: u32, attributes: Attributes<'_>) -> Self {
        Self::new(&[number], &attributes)
    }

    pub(crate) fn fattr(&self) -> Fattr<'_> {
        Fattr::decode(&mut Reader::new(&self.bytes)).expect("encoded attributes can be decoded")
    }
}

pub(crate) fn mode(bits: u32) -> Packed {
    Packed::one(33, Attributes { mode: Some(bits), ..Attributes::default() })
}

pub(crate) fn size(size: u64) -> Packed {
    Packed::one(4, Attributes { size: Some(size), ..Attributes::default() })
}

pub(crate) fn lookup(name: &str) -> Args<'_> {
    Args::Lookup(op::LookupArgs { name: Name(name.as_bytes()) })
}

pub(crate) fn putfh(handle: Filehandle) -> Args<'static> {
    Args::Putfh(op::PutfhArgs { handle })
}

pub(crate) fn getattr(wanted: &[u32]) -> Args<'static> {
    Args::Getattr(op::GetattrArgs { wanted: Bitmap::of(wanted) })
}

pub(crate) fn setattr(attrs: &Packed) -> Args<'_> {
    Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.fattr() })
}

pub(crate) fn mkdir<'a>(name: &'a str, attrs: &'a Packed) -> Args<'a> {
    Args::Create(op::CreateArgs {
        kind: op::CreateType::Plain(FileType::Directory),
        name: Name(name.as_bytes()),
        attrs: attrs.fattr(),
    })
}

pub(crate) fn remove(name: &str) -> Args<'_> {
    Args::Remove(op::RemoveArgs { name: Name(name.as_bytes()) })
}

pub(crate) fn rename<'a>(old: &'a str, new: &'a str) -> Args<'a> {
    Args::Rename(op::RenameArgs { old: Name(old.as_bytes()), new: Name(new.as_bytes()) })
}

pub(crate) fn readdir(cookie: u64, max_count: u32, wanted: &[u32]) -> Args<'static> {
    let (cookie, verifier, wanted) = (Cookie(cookie), Verifier([0; 8]), Bitmap::of(wanted));
    Args::Readdir(op::ReaddirArgs { cookie, verifier, dir_count: 0, max_count, wanted })
}

pub(crate) fn open<'a>(
    access: op::ShareAccess,
    how: op::OpenHow<'a>,
    claim: op::OpenClaim<'a>,
) -> Args<'a> {
    open_as(ClientId(0), b"owner", 0, access, how, claim)
}

pub(crate) fn open_as<'a>(
    client: ClientId,
    owner: &'a [u8],
    seq: u32,
    access: op::ShareAccess,
    how: op::OpenHow<'a>,
    claim: op::OpenClaim<'a>,
) -> Args<'a> {
    let owner = StateOwner { client, owner: Bytes(owner) };
    Args::Open(op::OpenArgs {
        seq: OwnerSeq(seq),
        access,
        deny: op::ShareDeny(0),
        owner,
        how,
        claim,
    })
}

pub(crate) fn open_by_name<'a>(name: &'a str, attrs: Option<&'a Packed>) -> Args<'a> {
    let how = attrs.map_or(op::OpenHow::NoCreate, |attrs| {
        op::OpenHow::Create(op::CreateHow::Unchecked(attrs.fattr()))
    });
    open(op::ShareAccess::BOTH, how, op::OpenClaim::Null(Name(name.as_bytes())))
}

pub(crate) fn close(stateid: Stateid) -> Args<'static> {
    Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid })
}

pub(crate) fn read(stateid: Stateid, offset: u64, count: u32) -> Args<'static> {
    Args::Read(op::ReadArgs { stateid, offset, count })
}

/// Unstable.
pub(crate) fn write(stateid: Stateid, offset: u64, data: &[u8]) -> Args<'_> {
    write_as(stateid, offset, op::StableHow::Unstable, data)
}

pub(crate) fn write_stable(stateid: Stateid, offset: u64, data: &[u8]) -> Args<'_> {
    write_as(stateid, offset, op::StableHow::FileSync, data)
}

pub(crate) fn write_as(
    stateid: Stateid,
    offset: u64,
    stable: op::StableHow,
    data: &[u8],
) -> Args<'_> {
    Args::Write(op::WriteArgs { stateid, offset, stable, data: Bytes(data) })
}

pub(crate) fn commit() -> Args<'static> {
    Args::Commit(op::CommitArgs { offset: 0, count: 0 })
}

pub(crate) fn lock(open: Stateid, offset: u64, length: u64) -> Args<'static> {
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"locker") };
    let locker = op::Locker::New(op::NewLockOwner {
        open_seq: OwnerSeq(0),
        open,
        lock_seq: OwnerSeq(0),
        owner,
    });
    Args::Lock(op::LockArgs { kind: op::LockType::Write, reclaim: false, offset, length, locker })
}

pub(crate) fn copy(
    source: (Stateid, u64),
    destination: (Stateid, u64),
    count: u64,
    synchronous: bool,
) -> Args<'static> {
    Args::Copy(op::CopyArgs {
        source: source.0,
        destination: destination.0,
        source_offset: source.1,
        destination_offset: destination.1,
        count,
        consecutive: true,
        synchronous,
        source_server: List::default(),
    })
}

pub(crate) fn exchange_id<'a>(
    owner: &'a str,
    boot: u8,
    state_protect: StateProtect<'a>,
) -> Args<'a> {
    let owner = ClientOwner { verifier: Verifier([boot; 8]), id: Bytes(owner.as_bytes()) };
    Args::ExchangeId(op::ExchangeIdArgs {
        owner,
        flags: op::ExchangeIdFlags(0),
        state_protect,
        impl_id: None,
    })
}

pub(crate) fn create_session(client: ClientId, seq: CreateSeq) -> Args<'static> {
    let attrs = op::ChannelAttrs {
        header_pad_size: 0,
        request_len_max: 1 << 20,
        response_len_max: 1 << 20,
        response_cached_len_max: 4096,
        operations_max: 64,
        requests_max: 16,
        rdma_ird: None,
    };
    Args::CreateSession(op::CreateSessionArgs {
        client,
        seq,
        flags: op::CreateSessionFlags(0),
        fore: attrs,
        back: attrs,
        callback_program: 0x4000_0000,
        sec_parms: List(vec![CallbackSec::None]),
    })
}

pub(crate) fn setclientid(owner: &str) -> Args<'_> {
    let location = NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"0.0.0.0.0.0") };
    Args::Setclientid(op::SetclientidArgs {
        client: ClientOwner { verifier: Verifier([1; 8]), id: Bytes(owner.as_bytes()) },
        callback: op::CallbackClient { program: 0, location },
        callback_ident: 0,
    })
}
