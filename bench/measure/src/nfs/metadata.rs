//! As by git: stat files of the index, write a temporary object, rename it, remove it. Also GETATTR
//! alone.

use vouch_nfs4::op::{
    Args, CloseArgs, CreateHow, GetattrArgs, LookupArgs, OpenClaim, OpenHow, RemoveArgs,
    RenameArgs, Results, ShareAccess, StableHow, WriteArgs,
};
use vouch_nfs4::{Bitmap, Bytes, Filehandle, Name, OwnerSeq, Status};
use vouch_nfs4_client::{CallBuilder, Error, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, open_args, opened, packed_mode, putfh, unpacked};
use super::{CallResult, CallSource, small_files};
use crate::content::mix;

/// The attributes that Linux requests for stat.
pub(super) const WANTED: Bitmap =
    Bitmap::of(&[1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);

#[derive(Debug)]
pub(super) struct GitMetadata {
    directory: Filehandle,
    files: u64,
    names: String,
    lanes: Vec<Lane>,
    seed: u64,
    mode: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Lane {
    step: Step,
    stats: u32,
    file: u64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Stat,
    Create,
    Write(Opened),
    Close(Opened),
    Rename,
    Remove,
}

impl GitMetadata {
    pub(super) fn new(
        directory: Filehandle,
        files: u64,
        session: usize,
        depth: usize,
        seed: u64,
    ) -> Self {
        let lane = Lane { step: Step::Stat, stats: 0, file: 0 };
        Self {
            directory,
            files,
            names: format!("{session}-{seed:x}"),
            lanes: vec![lane; depth],
            seed,
            mode: packed_mode(0o444),
        }
    }

    pub(super) fn opens(&self) -> Vec<Opened> {
        let open = |lane: &Lane| match lane.step {
            Step::Write(opened) | Step::Close(opened) => Some(opened),
            Step::Stat | Step::Create | Step::Rename | Step::Remove => None,
        };
        self.lanes.iter().filter_map(open).collect()
    }

    fn name(&self, kind: &str, lane: usize) -> Vec<u8> {
        format!("{kind}-{}-{lane}", self.names).into_bytes()
    }
}

const STATS: u32 = 10;
const OBJECT: [u8; 300] = [b'o'; 300];

impl CallSource for GitMetadata {
    fn next(&mut self, lane: usize) -> bool {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.lanes[lane].file = mix(self.seed) % self.files.max(1);
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        let Lane { step, file, .. } = self.lanes[lane];
        let (temporary, permanent) = (self.name("tmp_obj", lane), self.name("obj", lane));
        match step {
            Step::Stat => {
                putfh(&self.directory, call, w);
                call.op(w, &Args::Lookup(LookupArgs { name: Name(&small_files::name(file)) }));
                call.op(w, &Args::Getattr(GetattrArgs { wanted: WANTED }));
            }
            Step::Create => {
                putfh(&self.directory, call, w);
                let how = OpenHow::Create(CreateHow::Guarded(unpacked(&self.mode)));
                call.op(w, &open_args(how, ShareAccess::BOTH, OpenClaim::Null(Name(&temporary))));
                call.op(w, &Args::Getfh);
            }
            Step::Write(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                call.op(
                    w,
                    &Args::Write(WriteArgs {
                        stateid,
                        offset: 0,
                        stable: StableHow::FileSync,
                        data: Bytes(&OBJECT),
                    }),
                );
            }
            Step::Close(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                call.op(w, &Args::Close(CloseArgs { seq: OwnerSeq(0), stateid }));
            }
            Step::Rename => {
                putfh(&self.directory, call, w);
                call.op(w, &Args::Savefh);
                call.op(
                    w,
                    &Args::Rename(RenameArgs { old: Name(&temporary), new: Name(&permanent) }),
                );
            }
            Step::Remove => {
                putfh(&self.directory, call, w);
                call.op(w, &Args::Remove(RemoveArgs { name: Name(&permanent) }));
            }
        }
    }

    fn on_reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        let lane = &mut self.lanes[lane];
        body.next_ok()?;
        lane.step = match lane.step {
            Step::Stat => {
                body.next_ok()?;
                let Results::Getattr(Ok(_)) = body.next_ok()? else {
                    return Err(Error::Mismatch("expected the result of GETATTR"));
                };
                lane.stats += 1;
                if lane.stats.is_multiple_of(STATS) { Step::Create } else { Step::Stat }
            }
            Step::Create => Step::Write(opened(&mut body)?),
            Step::Write(opened) => {
                body.next_ok()?;
                Step::Close(opened)
            }
            Step::Close(_) => {
                body.next_ok()?;
                Step::Rename
            }
            Step::Rename => {
                body.next_ok()?;
                body.next_ok()?;
                Step::Remove
            }
            Step::Remove => {
                body.next_ok()?;
                Step::Stat
            }
        };
        Ok(CallResult { bytes: 0, operations: 1 })
    }

    fn on_refusal(&mut self, lane: usize, _status: Status) {
        let lane = &mut self.lanes[lane];
        lane.step = match lane.step {
            Step::Create => Step::Rename,
            Step::Rename => Step::Remove,
            _ => Step::Stat,
        };
    }
}

#[derive(Debug)]
pub(super) struct Getattr {
    pub(super) handle: Filehandle,
}

impl CallSource for Getattr {
    fn next(&mut self, _lane: usize) -> bool {
        true
    }

    fn write(&mut self, _lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        putfh(&self.handle, call, w);
        call.op(w, &Args::Getattr(GetattrArgs { wanted: WANTED }));
    }

    fn on_reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        body.next_ok()?;
        match body.next_ok()? {
            Results::Getattr(Ok(_)) => Ok(CallResult { bytes: 0, operations: 1 }),
            _ => Err(Error::Mismatch("expected the result of GETATTR")),
        }
    }

    fn on_refusal(&mut self, _lane: usize, _status: Status) {}
}
