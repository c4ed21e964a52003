//! Kernel TLS (Documentation/networking/tls.rst): the kernel seals what is sent, so that file data
//! leaves by sendfile(2). Records that arrive are opened by `vouch_rpc_tls` as before.

#![allow(unsafe_code, reason = "the options and records of kernel TLS have no safe face")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use vouch_rpc_tls::{KEY_UPDATE_MESSAGE, Sealer, TlsError};

use crate::transport::output::Output;
use crate::transport::send::{self, Sent};

pub(crate) struct KernelSender {
    /// Of the next keys only.
    sealer: Sealer,
    bytes_left: u64,
    messages: Vec<Message>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    KeyUpdate,
    CloseNotify,
}

/// AES-GCM allows 2^24.5 full records under one key (RFC 8446 §5.5).
const BYTES_MAX: u64 = 1 << 38;
/// A reply takes one record more than its bytes fill, with header and tag.
const RECORD_COST: u64 = 64;

/// From now on the kernel seals what is written to the socket.
///
/// # Errors
///
/// `NotFound`: no module `tls`. `InvalidInput`: a cipher that the kernel lacks.
pub(crate) fn take_over(socket: BorrowedFd<'_>, sealer: &Sealer) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")?;
    set_option(socket, libc::SOL_TLS, libc::TLS_TX, &sealer.kernel_key())
}

impl KernelSender {
    /// After [`take_over`].
    pub(crate) fn new(sealer: Sealer) -> Self {
        KernelSender { sealer, bytes_left: BYTES_MAX, messages: Vec::new() }
    }

    pub(crate) fn update_key(&mut self) {
        if !self.messages.contains(&Message::KeyUpdate) {
            self.messages.push(Message::KeyUpdate);
        }
    }

    pub(crate) fn close(&mut self) {
        self.messages.push(Message::CloseNotify);
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        output: &mut Output,
        sent: &mut u64,
        mut done: impl FnMut(Vec<u8>),
    ) -> io::Result<Sent> {
        if self.bytes_left == 0 {
            self.update_key();
        }
        while let Some(message) = self.messages.first().copied() {
            match self.send_message(socket, message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
                outcome => outcome?,
            }
            self.messages.remove(0);
        }
        let (before, mut replies) = (*sent, 0);
        let outcome = send::send(socket, output, sent, |buffer| {
            replies += 1;
            done(buffer);
        });
        self.bytes_left = self.bytes_left.saturating_sub(*sent - before + replies * RECORD_COST);
        outcome
    }

    fn send_message(&mut self, socket: BorrowedFd<'_>, message: Message) -> io::Result<()> {
        match message {
            Message::CloseNotify => send_record(socket, ALERT, &[1, 0]),
            Message::KeyUpdate => {
                send_record(socket, HANDSHAKE, &KEY_UPDATE_MESSAGE)?;
                self.sealer.change_key().map_err(|error: TlsError| io::Error::other(error))?;
                // Kernels before 6.14 refuse a second key. The connection then ends, and the client
                // connects again.
                set_option(socket, libc::SOL_TLS, libc::TLS_TX, &self.sealer.kernel_key())?;
                self.bytes_left = BYTES_MAX;
                Ok(())
            }
        }
    }
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).expect("a short value");
    // SAFETY: `value` is readable for `len` bytes during the call.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A record of another type than application data.
fn send_record(socket: BorrowedFd<'_>, kind: u8, message: &[u8]) -> io::Result<()> {
    let mut part =
        libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // Aligned as cmsghdr.
    let mut control = [0_u64; 8];
    // SAFETY: all zeros are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    // SAFETY: `control` has room for one message of one byte; all pointers live until sendmsg(2)
    // returns, which only reads `message`.
    let sent = unsafe {
        header.msg_controllen = libc::CMSG_SPACE(1) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_TLS;
        (*first).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*first).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(first) = kind;
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const header,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent < message.len() => {
            Err(io::Error::other("the kernel took a part of a TLS message"))
        }
        Ok(_) => Ok(()),
    }
}
