//! Each vector of docs/formats/protocol.md.

use vouch_oncrpc::{Accepted, Call, Reply, record};
use vouch_tree::protocol::{
    FsinfoOffer, GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, PROGRAM,
    PutStatementArgs, PutStatementResult, VERSION,
};
use vouch_tree::{BlockHandle, HostId};
use vouch_xdr::{Writer, Xdr as _};

const DOCUMENT: &str = include_str!("../../../../docs/formats/protocol.md");

fn vector(name: &str) -> Vec<u8> {
    let fence = format!("```hex {name}\n");
    let start = DOCUMENT.find(&fence).unwrap_or_else(|| panic!("no vector {name}")) + fence.len();
    let hex: String = DOCUMENT[start..].lines().take_while(|line| *line != "```").collect();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    record(|w| Call::new(xid, (PROGRAM, VERSION), procedure, args).encode(w))
}

fn reply(xid: u32, outcome: Accepted<'_>) -> Vec<u8> {
    record(|w| Reply::accepted(xid, outcome).encode(w))
}

fn hostid() -> HostId {
    HostId::from_bytes(std::array::from_fn(|i| i as u8))
}

#[test]
fn null_and_refusal_match_vectors() {
    assert_eq!(call(1, 0, &[]), vector("call-null"));
    assert_eq!(reply(1, Accepted::Success(&[])), vector("reply-null"));
    assert_eq!(reply(5, Accepted::GarbageArgs), vector("reply-garbage-args"));
}

#[test]
fn getfsinfo() {
    let args = GetFsinfoArgs { hostid: hostid(), companions: true };
    assert_eq!(call(2, 1, &args.to_xdr()), vector("call-getfsinfo"));
    let offer = FsinfoOffer {
        signed_fsinfo: b"fsinfo".to_vec(),
        statements: vec![b"stmt".to_vec()],
        companions: vec![b"\x03\0page!".to_vec()],
    };
    let results = GetFsinfoResult::Ok(offer);
    assert_eq!(reply(2, Accepted::Success(&results.to_xdr())), vector("reply-getfsinfo"));
    assert_eq!(
        reply(3, Accepted::Success(&GetFsinfoResult::NoTree.to_xdr())),
        vector("reply-getfsinfo-no-tree")
    );
    let record = vector("reply-getfsinfo");
    let Ok(Reply {
        body: vouch_oncrpc::ReplyBody::Accepted { outcome: Accepted::Success(read), .. },
        ..
    }) = Reply::decode(&record[4..])
    else {
        panic!("the reply is read")
    };
    assert_eq!(GetFsinfoResult::from_xdr(read), Ok(results));
}

#[test]
fn getdata() {
    let handles = vec![BlockHandle::from_bytes([0x11; 32]), BlockHandle::from_bytes([0x22; 32])];
    let args = GetDataArgs { hostid: hostid(), handles };
    let record = vector("call-getdata");
    assert_eq!(call(4, 2, &args.to_xdr()), record);
    assert_eq!(GetDataArgs::from_xdr(Call::decode(&record[4..]).unwrap().args), Ok(args));
    let mut w = Writer::new();
    GetDataResult { frames: vec![Some(b"\x01\0abc"), None] }.encode(&mut w);
    assert_eq!(reply(4, Accepted::Success(w.as_bytes())), vector("reply-getdata"));
}

#[test]
fn putstatement() {
    let args = PutStatementArgs { statement: b"stmt".to_vec() };
    assert_eq!(call(6, 3, &args.to_xdr()), vector("call-putstatement"));
    assert_eq!(
        reply(6, Accepted::Success(&PutStatementResult::Known.to_xdr())),
        vector("reply-putstatement")
    );
}
