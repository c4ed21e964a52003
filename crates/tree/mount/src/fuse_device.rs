//! For a mount that changes its process: sessions on a device whose FUSE_INIT another process
//! answered, and backing files by number.
//!
//! The library begins each session by reading FUSE_INIT. Here it reads a copy of that request from
//! a socket; then the device takes over the socket's descriptor.

#![allow(
    unsafe_code,
    reason = "ioctls of /dev/fuse, and a descriptor that the library owns, have no safe face"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use fuser::{
    BackingId, Config, FileHandle, Filesystem, FopenFlags, InitFlags, ReplyOpen, Session,
    SessionACL,
};
use rustix::ioctl;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::journal::record::KernelRecord;

pub(crate) fn resume_session<F: Filesystem>(
    filesystem: F,
    device: &OwnedFd,
    kernel: KernelRecord,
    acl: SessionACL,
    config: Config,
) -> io::Result<Session<F>> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    send(&ours, &init_request(kernel), SendFlags::empty())?;
    let session = Session::from_fd(filesystem, theirs, acl, config)?;
    let mut reply = [0; INIT_REPLY_LEN_MAX];
    let (_, len) = recv(&ours, &mut reply[..], RecvFlags::DONTWAIT)?;
    if reply.get(4..8) != Some(&[0; 4]) || len < 16 {
        return Err(io::Error::other("the FUSE library refused the kernel's offer"));
    }
    replace_descriptor(session.as_fd(), device)?;
    Ok(session)
}

pub(crate) fn replace_descriptor(library: BorrowedFd<'_>, device: &OwnedFd) -> io::Result<()> {
    // SAFETY: the session keeps this descriptor open during the call; `ManuallyDrop` leaves the
    // ownership there.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(library.as_raw_fd()) });
    Ok(rustix::io::dup3(device, &mut target, rustix::io::DupFlags::CLOEXEC)?)
}

/// Closing its last copy fails the requests read from it, but does not end the mount.
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let clone: OwnedFd = std::fs::File::options().read(true).write(true).open("/dev/fuse")?.into();
    let number = device.as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads a 32-bit descriptor number.
    unsafe { ioctl::ioctl(&clone, ioctl::Setter::<DEV_IOC_CLONE, u32>::new(number))? };
    Ok(clone)
}

/// The kernel sends all unanswered requests again.
pub(crate) fn resend_requests(device: &OwnedFd) -> io::Result<()> {
    // fuse_out_header: length, notification code in place of the error, unique 0.
    let mut notice = [0; 16];
    notice[..4].copy_from_slice(&16_u32.to_ne_bytes());
    notice[4..8].copy_from_slice(&NOTIFY_RESEND.to_ne_bytes());
    rustix::io::write(device, &notice)?;
    Ok(())
}

pub(crate) const fn can_resend(kernel: KernelRecord) -> bool {
    kernel.flags & InitFlags::FUSE_HAS_RESEND.bits() != 0
}

/// The kernel's number survives a change of the process.
pub(crate) struct Backing {
    device: Arc<OwnedFd>,
    number: u32,
}

impl Backing {
    pub(crate) fn open(device: &Arc<OwnedFd>, file: impl AsFd) -> io::Result<Self> {
        let number = BackingId::create_raw(device, file)?;
        Ok(Self { device: device.clone(), number })
    }

    pub(crate) const fn restore(device: Arc<OwnedFd>, number: u32) -> Self {
        Self { device, number }
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn reply(&self, reply: ReplyOpen, handle: FileHandle, flags: FopenFlags) {
        // SAFETY: the number is open until `self` is dropped; `into_raw` keeps the temporary value
        // from closing it.
        let id = unsafe { reply.wrap_backing(self.number) };
        reply.opened_passthrough(handle, flags, &id);
        id.into_raw();
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads a 32-bit number.
        let closed = unsafe {
            ioctl::ioctl(
                &self.device,
                ioctl::Setter::<DEV_IOC_BACKING_CLOSE, u32>::new(self.number),
            )
        };
        if let Err(error) = closed {
            // The mount has ended.
            tracing::debug!("closing a backing file: {error}");
        }
    }
}

/// fuse_in_header and fuse_init_in, in the machine's byte order.
fn init_request(kernel: KernelRecord) -> Vec<u8> {
    let KernelRecord { major, minor, flags } = kernel;
    // The library does not report this flag, which announces the upper half.
    let flags = flags | InitFlags::FUSE_INIT_EXT.bits();
    let header = [INIT_REQUEST_LEN, OPCODE_INIT, 1, 0, 0, 0, 0, 0, 0, 0];
    let arguments = [major, minor, READ_AHEAD_MAX, flags as u32, (flags >> 32) as u32];
    header.into_iter().chain(arguments).chain([0; 11]).flat_map(u32::to_ne_bytes).collect()
}

const OPCODE_INIT: u32 = 26;
const INIT_REQUEST_LEN: u32 = 104;
const INIT_REPLY_LEN_MAX: usize = 256;
const NOTIFY_RESEND: i32 = 7;

/// Agreed on when the mount began; the answer goes nowhere.
const READ_AHEAD_MAX: u32 = u32::MAX;

/// `_IOR(229, 0, uint32_t)` and `_IOW(229, 2, uint32_t)` of linux/fuse.h.
const DEV_IOC_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);
const DEV_IOC_BACKING_CLOSE: ioctl::Opcode = ioctl::opcode::write::<u32>(229, 2);
