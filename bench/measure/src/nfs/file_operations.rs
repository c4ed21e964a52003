use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{
    Args, CloseArgs, CommitArgs, CreateArgs, CreateHow, CreateType, LookupArgs, OpenClaim, OpenHow,
    ReaddirArgs, RemoveArgs, Results, ShareAccess,
};
use vouch_nfs4::{Bitmap, Cookie, Filehandle, Name, OwnerSeq, Status, Verifier};
use vouch_nfs4_client::{CallBuilder, Error as CallError, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, open_args, opened, packed_mode, putfh, unpacked};
use super::{CallResult, CallSource, Session, Tally};
use crate::{Error, StopFlag};

impl Session {
    pub(super) fn walk(&mut self, path: &[String], stop: &StopFlag) -> Result<Filehandle, Error> {
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            call.op(w, &Args::Putrootfh);
            path.iter().for_each(|name| {
                call.op(w, &Args::Lookup(LookupArgs { name: Name(name.as_bytes()) }))
            });
            call.op(w, &Args::Getfh);
        };
        self.call(&self.target(), stop, write, |mut body| {
            (0..=path.len()).try_for_each(|_| body.next_ok().map(drop))?;
            handle(&mut body)
        })
    }

    pub(super) fn list(
        &mut self,
        directory: &Filehandle,
        stop: &StopFlag,
    ) -> Result<Vec<(Vec<u8>, bool)>, Error> {
        let (mut cookie, mut verifier, mut entries) = (Cookie(0), Verifier::default(), Vec::new());
        loop {
            let args = ReaddirArgs {
                cookie,
                verifier,
                dir_count: 16 * 1024,
                max_count: 64 * 1024,
                wanted: Bitmap::of(&[1]),
            };
            let write = |call: &mut CallBuilder, w: &mut Writer| {
                putfh(directory, call, w);
                call.op(w, &Args::Readdir(args));
            };
            let before = entries.len();
            let eof = self.call("a directory", stop, write, |mut body| {
                body.next_ok()?;
                let Results::Readdir(Ok(ok)) = body.next_ok()? else {
                    return Err(CallError::Mismatch("expected the result of READDIR"));
                };
                for entry in ok.entries.iter() {
                    let kind = entry.attrs.attributes()?.file_type;
                    entries.push((entry.name.0.to_vec(), kind == Some(FileType::Directory)));
                    cookie = entry.cookie;
                }
                verifier = ok.verifier;
                Ok(ok.eof)
            })?;
            if eof || entries.len() == before {
                return Ok(entries);
            }
        }
    }

    pub(super) fn mkdir(
        &mut self,
        directory: &Filehandle,
        name: &str,
        stop: &StopFlag,
    ) -> Result<Filehandle, Error> {
        let mode = packed_mode(0o755);
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            putfh(directory, call, w);
            let kind = CreateType::Plain(FileType::Directory);
            call.op(
                w,
                &Args::Create(CreateArgs {
                    kind,
                    name: Name(name.as_bytes()),
                    attrs: unpacked(&mode),
                }),
            );
            call.op(w, &Args::Getfh);
        };
        self.call(&format!("{}: making {name}", self.target()), stop, write, |mut body| {
            (0..2).try_for_each(|_| body.next_ok().map(drop))?;
            handle(&mut body)
        })
    }

    pub(super) fn open(
        &mut self,
        directory: &Filehandle,
        name: &[u8],
        writes: bool,
        stop: &StopFlag,
    ) -> Result<Opened, Error> {
        let mode = packed_mode(0o644);
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            let (how, access) = match writes {
                true => (OpenHow::Create(CreateHow::Unchecked(unpacked(&mode))), ShareAccess::BOTH),
                false => (OpenHow::NoCreate, ShareAccess::READ),
            };
            putfh(directory, call, w);
            call.op(w, &open_args(how, access, OpenClaim::Null(Name(name))));
            call.op(w, &Args::Getfh);
        };
        self.call(&String::from_utf8_lossy(name), stop, write, |mut body| {
            body.next_ok()?;
            opened(&mut body)
        })
    }

    pub(super) fn commit(&mut self, file: Opened, stop: &StopFlag) -> Result<(), Error> {
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            putfh(&file.handle, call, w);
            call.op(w, &Args::Commit(CommitArgs { offset: 0, count: 0 }));
        };
        self.call("COMMIT", stop, write, |mut body| {
            (0..2).try_for_each(|_| body.next_ok().map(drop))
        })
    }

    pub(super) fn close(&mut self, file: Opened, stop: &StopFlag) -> Result<(), Error> {
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            putfh(&file.handle, call, w);
            call.op(w, &Args::Close(CloseArgs { seq: OwnerSeq(0), stateid: file.stateid }));
        };
        self.call("CLOSE", stop, write, |mut body| {
            (0..2).try_for_each(|_| body.next_ok().map(drop))
        })
    }

    pub(super) fn remove_all(
        &mut self,
        parent: &Filehandle,
        name: &[u8],
        stop: &StopFlag,
    ) -> Result<(), Error> {
        let stop = &stop.for_cleanup();
        let look = |call: &mut CallBuilder, w: &mut Writer| {
            putfh(parent, call, w);
            call.op(w, &Args::Lookup(LookupArgs { name: Name(name) }));
            call.op(w, &Args::Getfh);
        };
        let found = self.call(&String::from_utf8_lossy(name), stop, look, |mut body| {
            (0..2).try_for_each(|_| body.next_ok().map(drop))?;
            handle(&mut body)
        });
        let directory = match found {
            Err(Error::NotFound(_)) => return Ok(()),
            found => found?,
        };
        let (directories, files): (Vec<_>, Vec<_>) =
            self.list(&directory, stop)?.into_iter().partition(|(_, is_directory)| *is_directory);
        directories.iter().try_for_each(|(name, _)| self.remove_all(&directory, name, stop))?;
        self.remove_files(directory, files.into_iter().map(|(name, _)| name), REMOVES, stop)?;
        let write = |call: &mut CallBuilder, w: &mut Writer| {
            putfh(parent, call, w);
            call.op(w, &Args::Remove(RemoveArgs { name: Name(name) }));
        };
        self.call(&String::from_utf8_lossy(name), stop, write, |mut body| {
            (0..2).try_for_each(|_| body.next_ok().map(drop))
        })
    }
}

impl Session {
    pub(super) fn remove_files(
        &mut self,
        directory: Filehandle,
        mut names: impl Iterator<Item = Vec<u8>>,
        depth: usize,
        stop: &StopFlag,
    ) -> Result<Tally, Error> {
        let mut work = Removes {
            directory,
            names: &mut names,
            lanes: vec![Vec::new(); depth],
            delayed: Vec::new(),
            again: Vec::new(),
        };
        self.complete(&mut work, depth, stop)
    }
}

const REMOVES: usize = 16;

struct Removes<'a> {
    directory: Filehandle,
    names: &'a mut dyn Iterator<Item = Vec<u8>>,
    lanes: Vec<Vec<u8>>,
    delayed: Vec<Vec<u8>>,
    again: Vec<Vec<u8>>,
}

impl CallSource for Removes<'_> {
    fn next(&mut self, lane: usize) -> bool {
        let Some(name) = self.again.pop().or_else(|| self.names.next()) else { return false };
        self.lanes[lane] = name;
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        putfh(&self.directory, call, w);
        call.op(w, &Args::Remove(RemoveArgs { name: Name(&self.lanes[lane]) }));
    }

    fn on_reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, CallError> {
        body.next_ok()?;
        body.next_ok()?;
        Ok(CallResult { bytes: 0, operations: 1 })
    }

    fn on_refusal(&mut self, lane: usize, status: Status) {
        if status == Status::DELAY {
            self.delayed.push(std::mem::take(&mut self.lanes[lane]));
        }
    }

    fn retry_delayed(&mut self) -> bool {
        self.again.append(&mut self.delayed);
        !self.again.is_empty()
    }
}

fn handle(body: &mut ReplyBody<'_>) -> Result<Filehandle, CallError> {
    match body.next_ok()? {
        Results::Getfh(Ok(ok)) => Ok(ok.handle),
        _ => Err(CallError::Mismatch("expected the result of GETFH")),
    }
}
