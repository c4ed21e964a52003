use std::ops::Range;

use vouch_nfs4::op::{
    Args, CloseArgs, CreateHow, OpenClaim, OpenHow, ReadArgs, Results, ShareAccess, StableHow,
    WriteArgs,
};
use vouch_nfs4::{Bytes, Filehandle, Name, OwnerSeq, Status};
use vouch_nfs4_client::{CallBuilder, Error, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, open_args, opened, packed_mode, putfh, unpacked};
use super::session::OTHER_DATA;
use super::{CallResult, CallSource};
use crate::case::Content;
use crate::content::Pages;

#[derive(Debug)]
pub(super) struct SmallFiles {
    pages: Pages,
    directory: Filehandle,
    files: Range<u64>,
    delayed: Vec<u64>,
    again: Vec<u64>,
    len: usize,
    content: Content,
    action: FileAction,
    lanes: Vec<Lane>,
    data: Vec<u8>,
    mode: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileAction {
    Create,
    Append,
    Read,
}

#[derive(Debug, Clone)]
struct Lane {
    step: Step,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open,
    Transfer(Opened),
    Close(Opened),
}

impl SmallFiles {
    pub(super) fn new(
        pages: &Pages,
        directory: Filehandle,
        files: Range<u64>,
        copy: &crate::case::Copy,
        action: FileAction,
    ) -> Self {
        let lanes = vec![Lane { step: Step::Open, number: 0 }; copy.streams as usize];
        let (len, data, mode) = (copy.len as usize, vec![0; copy.len as usize], packed_mode(0o644));
        let (delayed, again) = (Vec::new(), Vec::new());
        Self {
            pages: pages.clone(),
            directory,
            files,
            delayed,
            again,
            len,
            content: copy.content,
            action,
            lanes,
            data,
            mode,
        }
    }
}

pub(super) fn name(number: u64) -> Vec<u8> {
    format!("file{number:06}").into_bytes()
}

impl CallSource for SmallFiles {
    fn next(&mut self, lane: usize) -> bool {
        if let Step::Open = self.lanes[lane].step {
            let Some(number) = self.again.pop().or_else(|| self.files.next()) else { return false };
            self.lanes[lane].number = number;
        }
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        let Lane { step, number } = self.lanes[lane];
        match step {
            Step::Open => {
                let (how, access) = match self.action {
                    FileAction::Create => (
                        OpenHow::Create(CreateHow::Unchecked(unpacked(&self.mode))),
                        ShareAccess::BOTH,
                    ),
                    FileAction::Append => (OpenHow::NoCreate, ShareAccess::WRITE),
                    FileAction::Read => (OpenHow::NoCreate, ShareAccess::READ),
                };
                let name = name(number);
                putfh(&self.directory, call, w);
                call.op(w, &open_args(how, access, OpenClaim::Null(Name(&name))));
                call.op(w, &Args::Getfh);
            }
            Step::Transfer(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                if self.action != FileAction::Read {
                    // FILE_SYNC, as Linux writes a small file on close.
                    self.pages.fill(self.content, number, 0, &mut self.data);
                    let offset =
                        if self.action == FileAction::Append { self.len as u64 } else { 0 };
                    call.op(
                        w,
                        &Args::Write(WriteArgs {
                            stateid,
                            offset,
                            stable: StableHow::FileSync,
                            data: Bytes(&self.data),
                        }),
                    );
                } else {
                    call.op(
                        w,
                        &Args::Read(ReadArgs { stateid, offset: 0, count: self.len as u32 + 1 }),
                    );
                }
            }
            Step::Close(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                call.op(w, &Args::Close(CloseArgs { seq: OwnerSeq(0), stateid }));
            }
        }
    }

    fn on_reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        let lane = &mut self.lanes[lane];
        body.next_ok()?;
        match lane.step {
            Step::Open => lane.step = Step::Transfer(opened(&mut body)?),
            Step::Transfer(opened) => {
                match body.next_ok()? {
                    Results::Write(Ok(ok)) if ok.count as usize == self.len => {}
                    Results::Read(Ok(ok))
                        if ok.data.len() == self.len
                            && self.pages.matches(self.content, lane.number, 0, &ok.data) => {}
                    Results::Read(Ok(_)) => return Err(Error::Mismatch(OTHER_DATA)),
                    _ => return Err(Error::Mismatch("a short transfer")),
                }
                lane.step = Step::Close(opened);
            }
            Step::Close(_) => {
                body.next_ok()?;
                lane.step = Step::Open;
                return Ok(CallResult { bytes: self.len as u64, operations: 1 });
            }
        }
        Ok(CallResult::default())
    }

    fn on_refusal(&mut self, lane: usize, status: Status) {
        self.lanes[lane].step = Step::Open;
        if status == Status::DELAY {
            self.delayed.push(self.lanes[lane].number);
        }
    }

    fn retry_delayed(&mut self) -> bool {
        self.again.append(&mut self.delayed);
        !self.again.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_delayed_file_but_not_refused_one() {
        let copy =
            crate::case::Copy { files: 3, len: 10, content: Content::Random, streams: 2, depth: 1 };
        let mut work = SmallFiles::new(
            &Pages::new(),
            Filehandle::new(b"h").expect("the handle is short"),
            0..3,
            &copy,
            FileAction::Create,
        );
        assert!(work.next(0) && work.next(1));
        work.on_refusal(0, Status::DELAY);
        work.on_refusal(1, Status::NOSPC);
        assert!(work.next(0) && work.lanes[0].number == 2);
        assert!(!work.next(1));
        assert!(work.retry_delayed() && work.next(1));
        assert_eq!(work.lanes[1].number, 0);
        assert!(!work.retry_delayed());
    }
}
