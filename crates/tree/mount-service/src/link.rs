//! A message is one packet: the version, its kind, text for people, and file descriptors. The
//! worker's end is its standard input.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

pub(crate) struct Link(OwnedFd);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// To a worker: mount. With the journal.
    Start,
    /// From a worker. With the device; the text is the device number.
    Mounted,
    /// To a worker: prepare to take the mount over. With the device and the journal.
    Prepare,
    /// From a worker: prepared. The text is `exclusive` if the earlier process must end first.
    Prepared,
    /// To a worker: answer all requests and stop.
    Stop,
    Stopped,
    Resume,
    /// To a prepared worker: take over. The text is `killed` if the earlier process was killed.
    TakeOver,
    Ready,
    Begin,
    Serving,
    /// From a worker: it cannot. The text says why.
    Refused,
    Unmount,
    /// To a worker: show the newest revision, and answer on the descriptor.
    Refresh,
    /// To a stopped worker: end, another one serves.
    End,
    /// To the next program of the supervisor, with the device, the journal, the worker's link, and
    /// the socket of `vouch upgrade` if any.
    Supervise,
}

const MESSAGE_KINDS: [(MessageKind, &str); 16] = [
    (MessageKind::Start, "start"),
    (MessageKind::Mounted, "mounted"),
    (MessageKind::Prepare, "prepare"),
    (MessageKind::Prepared, "prepared"),
    (MessageKind::Stop, "stop"),
    (MessageKind::Stopped, "stopped"),
    (MessageKind::Resume, "resume"),
    (MessageKind::TakeOver, "take-over"),
    (MessageKind::Ready, "ready"),
    (MessageKind::Begin, "begin"),
    (MessageKind::Serving, "serving"),
    (MessageKind::Refused, "refused"),
    (MessageKind::Unmount, "unmount"),
    (MessageKind::Refresh, "refresh"),
    (MessageKind::End, "end"),
    (MessageKind::Supervise, "supervise"),
];

pub(crate) struct Message {
    pub(crate) kind: MessageKind,
    pub(crate) text: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Link {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    pub(crate) fn from_standard_input() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    pub(crate) const fn from_descriptor(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    pub(crate) fn send(
        &self,
        kind: MessageKind,
        text: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let name =
            MESSAGE_KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name);
        let mut end = text.len().min(TEXT_LEN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let packet = format!("{VERSION} {name} {}", &text[..end]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.0, &[IoSlice::new(packet.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        let mut packet = [0; TEXT_LEN_MAX + 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut packet)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                // Once if the other end closed before it read all; its last message may be there.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                done => break done?,
            }
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = part {
                descriptors.extend(passed);
            }
        }
        let (kind, text) = parse(&packet[..received.bytes])?;
        Ok(Some(Message { kind, text, descriptors }))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn parse(packet: &[u8]) -> io::Result<(MessageKind, String)> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let text = std::str::from_utf8(packet).map_err(|_| invalid("a message that is not UTF-8"))?;
    let mut parts = text.splitn(3, ' ');
    if parts.next() != Some(VERSION) {
        return Err(invalid(
            "the other process speaks another version of the hand-over; unmount, and mount again",
        ));
    }
    let name = parts.next().unwrap_or_default();
    let kind = MESSAGE_KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
    Ok((
        kind.ok_or_else(|| invalid("an unknown message"))?,
        parts.next().unwrap_or_default().to_owned(),
    ))
}

const VERSION: &str = "vouch-mount-1";

const TEXT_LEN_MAX: usize = 2048;

const DESCRIPTORS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_text_and_descriptors() {
        let (ours, theirs) = Link::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        ours.send(MessageKind::Prepare, "a b", &[file.as_fd(), file.as_fd()]).unwrap();
        let message = theirs.receive().unwrap().unwrap();
        assert_eq!(
            (message.kind, message.text.as_str(), message.descriptors.len()),
            (MessageKind::Prepare, "a b", 2)
        );
        ours.send(MessageKind::Refused, &"ä".repeat(4000), &[]).unwrap();
        assert!(theirs.receive().unwrap().unwrap().text.len() <= TEXT_LEN_MAX);
        drop(ours);
        assert!(theirs.receive().unwrap().is_none());
    }

    #[test]
    fn reason_of_a_process_that_read_nothing_arrives() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send(MessageKind::Prepare, "", &[]).unwrap();
        theirs.send(MessageKind::Refused, "why", &[]).unwrap();
        drop(theirs);
        assert_eq!(ours.receive().unwrap().unwrap().text, "why");
        assert!(ours.receive().unwrap().is_none());
    }

    #[test]
    fn other_versions_and_unknown_words_are_refused() {
        assert!(parse(b"vouch-mount-2 start ").unwrap_err().to_string().contains("version"));
        assert!(
            parse(b"vouch-mount-1 dance ").is_err()
                && parse(b"\xff").is_err()
                && parse(b"").is_err()
        );
        for (kind, name) in MESSAGE_KINDS {
            assert_eq!(
                parse(format!("{VERSION} {name}").as_bytes()).unwrap(),
                (kind, String::new())
            );
        }
    }
}
