//! A replica's client as far as load needs one: fixed requests, and answers checked by hash.

use std::sync::OnceLock;

use vouch_oncrpc::{Accepted, Call, OpaqueAuth, RECORD_MARK_LEN, Reply, ReplyBody, begin_record, end_record};
use vouch_tree::protocol::{GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, PROGRAM, Procedure, VERSION};
use vouch_tree::{BlockHandle, HostId, Iv, frame};
use vouch_xdr::{Writer, Xdr as _};

use crate::tree::Published;

/// One request, ready to send, and what its answer must hold.
#[derive(Debug)]
pub struct Request {
    /// The record.
    pub bytes: Vec<u8>,
    expected: Expected,
    /// The first answer that was verified: requests are always the same, and so must their answers
    /// be.
    verified: OnceLock<Vec<u8>>,
}

#[derive(Debug)]
enum Expected {
    /// This fsinfo, and companion frames of these handles.
    Fsinfo { signed: Vec<u8>, companions: Vec<BlockHandle>, iv: Iv },
    /// The frames of these handles.
    Data { handles: Vec<BlockHandle>, iv: Iv },
}

impl Request {
    /// GETFSINFO, whose answer must bring along the frames of `companions`.
    pub fn fsinfo(tree: &Published, companions: Vec<BlockHandle>) -> Self {
        let args = GetFsinfoArgs { hostid: tree.hostid, companions: !companions.is_empty() }.to_xdr();
        let expected = Expected::Fsinfo { signed: tree.signed.clone(), companions, iv: tree.iv };
        Self { bytes: record(Procedure::GetFsinfo, &args), expected, verified: OnceLock::new() }
    }

    /// GETDATA.
    pub fn data(hostid: HostId, iv: Iv, handles: Vec<BlockHandle>) -> Self {
        let args = GetDataArgs { hostid, handles: handles.clone() }.to_xdr();
        Self { bytes: record(Procedure::GetData, &args), expected: Expected::Data { handles, iv }, verified: OnceLock::new() }
    }

    /// Whether `received` is the whole answer; an error if it is wrong. The first is verified as a
    /// client does, by its hashes; those that follow are compared with it, byte by byte, which
    /// costs the load generator as much as it does with any other protocol.
    pub fn check(&self, received: &[u8]) -> Result<bool, String> {
        let Some((mark, rest)) = received.split_first_chunk::<RECORD_MARK_LEN>() else { return Ok(false) };
        let len = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        if rest.len() < len {
            return Ok(false);
        }
        if rest.len() > len {
            return Err("bytes follow the answer".into());
        }
        if let Some(verified) = self.verified.get() {
            return if received == &verified[..] { Ok(true) } else { Err("another answer than before".into()) };
        }
        self.verify(rest)?;
        self.verified.get_or_init(|| received.to_vec());
        Ok(true)
    }

    fn verify(&self, rest: &[u8]) -> Result<bool, String> {
        let reply = Reply::decode(rest).map_err(|error| error.to_string())?;
        let ReplyBody::Accepted { outcome: Accepted::Success(results), .. } = reply.body else { return Err(format!("{reply:?}")) };
        match &self.expected {
            Expected::Fsinfo { signed, companions, iv } => match GetFsinfoResult::from_xdr(results).map_err(|error| error.to_string())? {
                GetFsinfoResult::Ok(offer) if offer.signed_fsinfo == *signed => {
                    verify(iv, companions, offer.companions.iter().map(|frame| Some(&frame[..])))
                }
                other => Err(format!("another fsinfo: {other:?}")),
            },
            Expected::Data { handles, iv } => {
                let data = GetDataResult::from_xdr(results).map_err(|error| error.to_string())?;
                verify(iv, handles, data.frames.into_iter())
            }
        }
    }
}

fn verify<'a>(iv: &Iv, handles: &[BlockHandle], frames: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Result<bool, String> {
    if frames.len() != handles.len() {
        return Err(format!("{} frames for {} handles", frames.len(), handles.len()));
    }
    for (handle, bytes) in handles.iter().zip(frames) {
        frame::verify(iv, handle, bytes.ok_or("a frame is missing")?).map_err(|error| error.to_string())?;
    }
    Ok(true)
}

/// A call as a record.
pub fn record(procedure: Procedure, args: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    let start = begin_record(&mut w);
    let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    Call { xid: 1, program: PROGRAM, version: VERSION, procedure: procedure as u32, cred, verf, args }.encode(&mut w);
    let mut bytes = w.into_bytes();
    end_record(&mut bytes, start, 0);
    bytes
}
