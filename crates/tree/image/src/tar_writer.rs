//! Writes entries of a tar archive: ustar headers, and PAX headers for what they cannot hold. Equal
//! trees give equal bytes.

use tar::{EntryType, Header};
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Content, Inode};

/// A header block, with a PAX header before it if needed. `None`: archives have no sockets.
pub(crate) fn header(
    path: &[u8],
    inode: &Inode,
    xattrs: &Xattrs,
    link: Option<&[u8]>,
) -> Option<Vec<u8>> {
    let mut header = Header::new_ustar();
    let (kind, size, target) = match (&inode.content, link) {
        (_, Some(link)) => (EntryType::Link, 0, link),
        (Content::Regular { blob, .. }, _) => (EntryType::Regular, blob.size, &b""[..]),
        (Content::Directory { .. }, _) => (EntryType::Directory, 0, &b""[..]),
        (Content::Symlink(target), _) => (EntryType::Symlink, 0, &target[..]),
        (Content::Fifo, _) => (EntryType::Fifo, 0, &b""[..]),
        (Content::CharDevice(_), _) => (EntryType::Char, 0, &b""[..]),
        (Content::BlockDevice(_), _) => (EntryType::Block, 0, &b""[..]),
        (Content::Socket, _) => return None,
    };
    let mut pax = Vec::new();
    let mut name = path.to_vec();
    if kind == EntryType::Directory {
        name.push(b'/');
    }
    let fields = header.as_ustar_mut()?;
    put_text(&mut fields.name, &name, b"path", &mut pax);
    put_text(&mut fields.linkname, target, b"linkpath", &mut pax);
    header.set_entry_type(kind);
    header.set_mode(inode.mode.into());
    let mut number = |value: u64, max: u64, key: &[u8]| {
        if value > max {
            record(&mut pax, key, value.to_string().as_bytes());
        }
        value.min(max)
    };
    header.set_uid(number(inode.uid.into(), ID_MAX, b"uid"));
    header.set_gid(number(inode.gid.into(), ID_MAX, b"gid"));
    header.set_size(number(size, FIELD_MAX, b"size"));
    let time = inode.mtime;
    header.set_mtime(u64::try_from(time.s).unwrap_or(0).min(FIELD_MAX));
    if time.ns > 0 || time.s < 0 || time.s.cast_unsigned() > FIELD_MAX {
        record(&mut pax, b"mtime", decimal(time).as_bytes());
    }
    if let Content::CharDevice(device) | Content::BlockDevice(device) = &inode.content {
        header.set_device_major(device.major).ok()?;
        header.set_device_minor(device.minor).ok()?;
    }
    if link.is_none() {
        for (name, value) in xattrs.pairs() {
            record(&mut pax, &[b"SCHILY.xattr.", &name[..]].concat(), value);
        }
    }
    header.set_cksum();
    let mut bytes = Vec::new();
    if !pax.is_empty() {
        let mut extension = Header::new_ustar();
        extension.as_ustar_mut()?.name[..PAX_NAME.len()].copy_from_slice(PAX_NAME);
        extension.set_entry_type(EntryType::XHeader);
        extension.set_mode(0o644);
        extension.set_size(pax.len() as u64);
        for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
            set(&mut extension, 0);
        }
        extension.set_cksum();
        bytes.extend(extension.as_bytes());
        pax.resize(pax.len().next_multiple_of(BLOCK_LEN), 0);
        bytes.extend(pax);
    }
    bytes.extend(header.as_bytes());
    Some(bytes)
}

/// A text that does not fit is cut, and is whole in the PAX header.
fn put_text(field: &mut [u8; 100], text: &[u8], key: &[u8], pax: &mut Vec<u8>) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
    if text.len() > field.len() {
        record(pax, key, text);
    }
}

/// The length counts its own digits.
pub(crate) fn record(pax: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    pax.extend(len.to_string().bytes());
    pax.extend([b" ", key, b"=", value, b"\n"].concat());
}

fn decimal(time: vouch_tree::Timestamp) -> String {
    let (sign, s, ns) = match (time.s < 0, time.ns) {
        (true, 1..) => ("-", (time.s + 1).unsigned_abs(), 1_000_000_000 - time.ns),
        (true, 0) => ("-", time.s.unsigned_abs(), 0),
        (false, ns) => ("", time.s.unsigned_abs(), ns),
    };
    let text = format!("{sign}{s}.{ns:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) const BLOCK_LEN: usize = 512;

const PAX_NAME: &[u8] = b"PaxHeaders.0";

/// Seven octal digits.
const ID_MAX: u64 = 0o7_777_777;

/// Eleven octal digits.
const FIELD_MAX: u64 = 0o77_777_777_777;
