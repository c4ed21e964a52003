//! Load on many small files, and on attributes: create, write and close; open, read and close;
//! remove; GETATTR.

use std::ops::Range;

use vouch_nfs4::op::{
    Args, CloseArgs, CreateHow, GetattrArgs, OpenArgs, OpenClaim, OpenHow, ReadArgs, RemoveArgs, Results, ShareAccess, ShareDeny,
    StableHow, WriteArgs,
};
use vouch_nfs4::{Attributes, Bitmap, Bytes, ClientId, Fattr, Filehandle, Name, OwnerSeq, StateOwner};
use vouch_nfs4_client::{Error, OpenCall, ReplyBody};
use vouch_xdr::Writer;

use super::files::Opened;
use super::{Gain, Work, putfh};
use crate::tree;

/// Bytes of a small file.
pub const FILE_LEN: usize = 5000;

/// What Linux asks after a look at a file.
const WANTED: Bitmap = Bitmap::of(&[1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// OPEN that makes it, WRITE, CLOSE.
    Create(StableHow),
    /// OPEN, READ, CLOSE.
    Read,
    /// OPEN; it stays open.
    Hold,
}

/// Goes through the files of a directory, three calls each.
#[derive(Debug)]
pub struct Small {
    directory: Filehandle,
    files: Range<usize>,
    using: Use,
    lanes: Vec<Lane>,
    content: Vec<u8>,
    packed: Vec<u8>,
    /// Files that stay open.
    pub held: Vec<Opened>,
}

#[derive(Debug, Clone)]
struct Lane {
    step: Step,
    name: Vec<u8>,
    number: usize,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open,
    Transfer(Opened),
    Close(Opened),
}

impl Small {
    /// These files of a directory.
    pub fn new(directory: Filehandle, files: Range<usize>, using: Use, depth: usize) -> Self {
        let lane = Lane { step: Step::Open, name: Vec::new(), number: 0 };
        let mut w = Writer::new();
        Attributes { mode: Some(0o644), ..Attributes::default() }.encode(Attributes::KNOWN, &mut w);
        let (content, packed) = (tree::noise(FILE_LEN, 7), w.into_bytes());
        Self { directory, files, using, lanes: vec![lane; depth], content, packed, held: Vec::new() }
    }

    /// Whether a directory holds these files, byte by byte.
    pub fn verify(directory: &std::path::Path, files: Range<usize>) -> bool {
        let mut content = tree::noise(FILE_LEN, 7);
        files.into_iter().all(|number| {
            stamp(&mut content, number);
            std::fs::read(directory.join(format!("file{number:06}"))).is_ok_and(|bytes| bytes == content)
        })
    }
}

fn name_of(number: usize) -> Vec<u8> {
    format!("file{number:06}").into_bytes()
}

fn stamp(content: &mut [u8], number: usize) {
    content[..8].copy_from_slice(&(number as u64).to_le_bytes());
}

impl Work for Small {
    fn next(&mut self, lane: usize) -> bool {
        let lane = &mut self.lanes[lane];
        if let Step::Open = lane.step {
            let Some(number) = self.files.next() else { return false };
            lane.number = number;
            lane.name = name_of(number);
        }
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        let lane = &self.lanes[lane];
        match lane.step {
            Step::Open => {
                let mut r = vouch_xdr::Reader::new(&self.packed);
                let attrs: Fattr<'_> = vouch_nfs4::Wire::decode(&mut r).expect("what was encoded is readable");
                let (how, access) = match self.using {
                    Use::Create(_) => (OpenHow::Create(CreateHow::Unchecked(attrs)), ShareAccess::BOTH),
                    Use::Read | Use::Hold => (OpenHow::NoCreate, ShareAccess::READ),
                };
                putfh(&self.directory, call, w);
                call.op(w, &open_args(how, access, OpenClaim::Null(Name(&lane.name))));
                call.op(w, &Args::Getfh);
                call.op(w, &Args::Getattr(GetattrArgs { wanted: WANTED }));
            }
            Step::Transfer(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                if let Use::Create(stable) = self.using {
                    stamp(&mut self.content, lane.number);
                    call.op(w, &Args::Write(WriteArgs { stateid, offset: 0, stable, data: Bytes(&self.content) }));
                } else {
                    call.op(w, &Args::Read(ReadArgs { stateid, offset: 0, count: 8192 }));
                }
            }
            Step::Close(Opened { handle, stateid }) => {
                putfh(&handle, call, w);
                call.op(w, &Args::Close(CloseArgs { seq: OwnerSeq(0), stateid }));
            }
        }
    }

    fn reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        let lane = &mut self.lanes[lane];
        body.next_ok()?;
        match lane.step {
            Step::Open => {
                let opened = opened(&mut body)?;
                lane.step = Step::Transfer(opened);
                if self.using == Use::Hold {
                    self.held.push(opened);
                    lane.step = Step::Open;
                    return Ok(Gain { bytes: 0, done: 1 });
                }
            }
            Step::Transfer(opened) => {
                match (body.next_ok()?, self.using) {
                    (Results::Write(Ok(ok)), Use::Create(_)) if ok.count as usize == FILE_LEN => {}
                    (Results::Read(Ok(ok)), Use::Read) if ok.eof => {
                        stamp(&mut self.content, lane.number);
                        if ok.data[..] != self.content[..] {
                            return Err(Error::Mismatch("other data than the file's"));
                        }
                    }
                    _ => return Err(Error::Mismatch("a short transfer")),
                }
                lane.step = Step::Close(opened);
            }
            Step::Close(_) => {
                body.next_ok()?;
                lane.step = Step::Open;
                return Ok(Gain { bytes: FILE_LEN as u64, done: 1 });
            }
        }
        Ok(Gain::default())
    }
}

/// REMOVE of the files of a directory, one call each.
#[derive(Debug)]
pub struct Remove {
    directory: Filehandle,
    files: Range<usize>,
    names: Vec<Vec<u8>>,
}

impl Remove {
    /// These files of a directory.
    pub fn new(directory: Filehandle, files: Range<usize>, depth: usize) -> Self {
        Self { directory, files, names: vec![Vec::new(); depth] }
    }
}

impl Work for Remove {
    fn next(&mut self, lane: usize) -> bool {
        let Some(number) = self.files.next() else { return false };
        self.names[lane] = name_of(number);
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        putfh(&self.directory, call, w);
        call.op(w, &Args::Remove(RemoveArgs { name: Name(&self.names[lane]) }));
    }

    fn reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        body.next_ok()?;
        body.next_ok()?;
        Ok(Gain { bytes: 0, done: 1 })
    }
}

/// Opens one file that is there.
#[derive(Debug)]
pub struct OpenOne {
    /// The file.
    pub handle: Filehandle,
    /// Whether to write.
    pub writes: bool,
    /// The open.
    pub opened: Option<Opened>,
}

impl Work for OpenOne {
    fn next(&mut self, _lane: usize) -> bool {
        self.opened.is_none()
    }

    fn write(&mut self, _lane: usize, call: &mut OpenCall, w: &mut Writer) {
        putfh(&self.handle, call, w);
        let access = if self.writes { ShareAccess::BOTH } else { ShareAccess::READ };
        call.op(w, &open_args(OpenHow::NoCreate, access, OpenClaim::Fh));
        call.op(w, &Args::Getfh);
    }

    fn reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        body.next_ok()?;
        self.opened = Some(opened(&mut body)?);
        Ok(Gain::default())
    }
}

/// GETATTR of files in turn.
#[derive(Debug)]
pub struct Getattr {
    /// The files.
    pub handles: Vec<Filehandle>,
    /// The one whose turn it is.
    pub at: usize,
}

impl Work for Getattr {
    fn next(&mut self, _lane: usize) -> bool {
        self.at = (self.at + 1) % self.handles.len();
        true
    }

    fn write(&mut self, _lane: usize, call: &mut OpenCall, w: &mut Writer) {
        putfh(&self.handles[self.at], call, w);
        call.op(w, &Args::Getattr(GetattrArgs { wanted: WANTED }));
    }

    fn reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        body.next_ok()?;
        let Results::Getattr(Ok(ok)) = body.next_ok()? else { return Err(Error::Mismatch("not GETATTR's result")) };
        match ok.attrs.mask == WANTED {
            true => Ok(Gain { bytes: 0, done: 1 }),
            false => Err(Error::Mismatch("fewer attributes than were asked for")),
        }
    }
}

fn opened(body: &mut ReplyBody<'_>) -> Result<Opened, Error> {
    let Results::Open(Ok(ok)) = body.next_ok()? else { return Err(Error::Mismatch("not OPEN's result")) };
    let Results::Getfh(Ok(got)) = body.next_ok()? else { return Err(Error::Mismatch("not GETFH's result")) };
    Ok(Opened { handle: got.handle, stateid: ok.stateid })
}

/// No delegation is wanted: each file shall cost its three calls. One owner, as Linux has one a
/// user.
fn open_args<'a>(how: OpenHow<'a>, access: ShareAccess, claim: OpenClaim<'a>) -> Args<'a> {
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"a user") };
    let access = ShareAccess(access.0 | ShareAccess::WANT_NO_DELEG.0);
    Args::Open(OpenArgs { seq: OwnerSeq(0), access, deny: ShareDeny(0), owner, how, claim })
}
