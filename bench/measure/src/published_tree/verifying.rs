//! Repeats the calls of a mount's read by a client that accepts every answer, and by one that
//! verifies like the mount.

use std::sync::OnceLock;

use crate::case::{Case, Read};
use crate::cpu::ServerCpu;
use crate::subject::{
    ReadSubject, RecordingProxy, ReplaySubject, ReplyCheck, SubjectInfo, compile,
};
use crate::{Error, Run, Sample, StopFlag, Subject, workload};
use vouch_oncrpc::{Accepted, Call, RECORD_MARK_LEN, Reply, ReplyBody};
use vouch_tree::protocol::{GetDataArgs, GetDataResult, GetFsinfoResult, PROGRAM, Procedure};
use vouch_tree::{HostId, Iv, SignedFsinfo, TreeName, frame};
use vouch_xdr::Xdr as _;

use super::PublishedTree;
use super::mounted::Mounted;

impl PublishedTree {
    /// A client that accepts every answer, and one that verifies like the mount.
    pub fn verifying(&self, read: Read, stop: &StopFlag) -> Result<Vec<Box<dyn Subject>>, Error> {
        let replica = self.replica()?;
        let name: TreeName =
            self.name.parse().map_err(|error| Error::Input(format!("{}: {error}", self.name)))?;
        let hostid = *name.hostid();
        let calls = self.calls_of(replica, read, stop)?;
        let subject = |label: &str, belief| -> Box<dyn Subject> {
            let server = Some(ServerCpu::Process(self.replica.child.id()));
            Box::new(
                ReplaySubject::new(label.into(), replica, calls.clone(), server, stop)
                    .with_check(belief),
            )
        };
        let iv = OnceLock::new();
        let check = move |call: &[u8], answer: &[u8]| is_true(&hostid, &iv, call, answer).is_some();
        Ok(vec![
            subject("nothing verified", ReplyCheck::Length),
            subject("all verified", ReplyCheck::Checked(Box::new(check))),
        ])
    }

    pub(super) fn calls_of(
        &self,
        replica: std::net::SocketAddr,
        read: Read,
        stop: &StopFlag,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let recorder = RecordingProxy::begin(replica)?;
        let what = format!("read {} {}", read.files, read.len);
        let at = self.place(&what)?;
        let options = self.options(&recorder.address().to_string(), &format!("state {what}"));
        let mut mounted = Mounted::tree(&self.program, options, &self.name, None, &at, false);
        mounted.renew()?;
        let about =
            SubjectInfo { label: what, target: self.name.clone(), sec: None, details: Vec::new() };
        ReadSubject::new(about, at, Box::new(|| Ok(None)), None, stop)
            .measure(&Case::Read(read))?;
        drop(mounted);
        let calls = recorder.calls();
        // Without data calls, verification would seem free.
        let is_data = |call: &Vec<u8>| {
            message(call)
                .and_then(|call| Call::decode(call).ok())
                .is_some_and(|call| call.procedure == Procedure::GetData as u32)
        };
        if !calls.iter().any(is_data) {
            return Err(Error::NotFound("the mount requested no data".into()));
        }
        Ok(calls)
    }

    /// Clients that replay the reads of a compile.
    pub fn replayed(
        &self,
        quick: bool,
        run: &mut Run,
        stop: &StopFlag,
    ) -> Result<Vec<Box<dyn Subject>>, Error> {
        if !compile::is_installed() {
            return Err(Error::NotFound(
                "clients that replay a compile: a C compiler is not installed (cc)".into(),
            ));
        }
        let replica = self.replica()?;
        let recorder = RecordingProxy::begin(replica)?;
        let at = self.place("recorded")?;
        let options = self.options(&recorder.address().to_string(), "state-recorded");
        let cache = Some(self.directory.path().join("cache-recorded"));
        let mut mounted = Mounted::tree(&self.program, options, &self.name, cache, &at, false);
        mounted.renew()?;
        let right =
            compile::run(&at, workload::source_count(quick), 2, stop, &mut Sample::default())?;
        drop(mounted);
        if !right {
            return Err(Error::Corrupt(self.name.clone()));
        }
        run.machine.with_version("cc", "--version");
        let server = Some(ServerCpu::Process(self.replica.child.id()));
        Ok(vec![Box::new(ReplaySubject::new(
            "replica, replayed".into(),
            replica,
            recorder.calls(),
            server,
            stop,
        ))])
    }
}

/// Against the name and the signed data below it, apart from time and rollback.
fn is_true(hostid: &HostId, iv: &OnceLock<Iv>, call: &[u8], answer: &[u8]) -> Option<()> {
    let call = Call::decode(message(call)?).ok().filter(|call| call.program == PROGRAM)?;
    let reply = Reply::decode(message(answer)?).ok()?;
    let ReplyBody::Accepted { outcome: Accepted::Success(results), .. } = reply.body else {
        return None;
    };
    match Procedure::from_number(call.procedure)? {
        Procedure::Null | Procedure::PutStatement => Some(()),
        Procedure::GetFsinfo => {
            let GetFsinfoResult::Ok(offer) = GetFsinfoResult::from_xdr(results).ok()? else {
                return None;
            };
            let fsinfo = SignedFsinfo::from_xdr(&offer.signed_fsinfo).ok()?.open(hostid).ok()?;
            let iv = iv.get_or_init(|| fsinfo.iv);
            offer.companions.iter().for_each(|frame| {
                std::hint::black_box(iv.handle_of(frame));
            });
            (*iv == fsinfo.iv).then_some(())
        }
        Procedure::GetData => {
            let (handles, iv) = (GetDataArgs::from_xdr(call.args).ok()?.handles, iv.get()?);
            let frames = GetDataResult::from_xdr(results).ok()?.frames;
            let is_named = |(handle, frame): (_, &Option<&[u8]>)| {
                frame.is_some_and(|frame| frame::verify(iv, handle, frame).is_ok())
            };
            (handles.len() == frames.len() && handles.iter().zip(&frames).all(is_named))
                .then_some(())
        }
    }
}

fn message(record: &[u8]) -> Option<&[u8]> {
    let (mark, message) = record.split_first_chunk::<RECORD_MARK_LEN>()?;
    (u32::from_be_bytes(*mark) == 0x8000_0000 | u32::try_from(message.len()).ok()?)
        .then_some(message)
}

#[cfg(test)]
mod tests {
    use vouch_oncrpc::record;
    use vouch_tree::{BlockHandle, FrameKind};
    use vouch_xdr::Writer;

    use super::*;

    #[test]
    fn frame_matches_only_its_own_handle() {
        let (hostid, key) = (HostId::from_bytes([1; 32]), Iv::from_bytes([7; 32]));
        let iv = OnceLock::from(key);
        let stored = frame::build(FrameKind::Leaf, b"some text", 0);
        let call = |handle: BlockHandle| {
            let args = GetDataArgs { hostid, handles: vec![handle] }.to_xdr();
            record(|w| Call::new(1, (PROGRAM, 1), Procedure::GetData as u32, &args).encode(w))
        };
        let answer = |frames: Vec<Option<&[u8]>>| {
            let mut results = Writer::new();
            GetDataResult { frames }.encode(&mut results);
            let results = results.into_bytes();
            record(|w| Reply::accepted(1, Accepted::Success(&results)).encode(w))
        };
        let right = call(key.handle_of(&stored));
        assert!(is_true(&hostid, &iv, &right, &answer(vec![Some(&stored)])).is_some());
        let mut altered = stored.clone();
        altered[4] ^= 1;
        for wrong in
            [vec![Some(&altered[..])], vec![None], vec![], vec![Some(&stored[..]), Some(&stored)]]
        {
            assert!(is_true(&hostid, &iv, &right, &answer(wrong)).is_none());
        }
        assert!(
            is_true(
                &hostid,
                &iv,
                &call(BlockHandle::from_bytes([0; 32])),
                &answer(vec![Some(&stored)])
            )
            .is_none()
        );
        assert!(
            is_true(&hostid, &OnceLock::new(), &right, &answer(vec![Some(&stored)])).is_none(),
            "nothing is signed that says so"
        );
    }
}
