//! FUSE_INIT: the features of a mount.

use std::io;

use rustix::io::Errno;

use super::abi::{InitFlags, MAJOR, MINOR, MINOR_MIN, Opcode};
use super::{Device, Record, Request};

/// What this client asks of the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    pub(crate) io_len_max: u32,
    pub(crate) read_ahead_bytes: u32,
    /// Idmapped mounts. The kernel then names the caller only in requests that create files.
    pub(crate) idmap: bool,
    /// The server sees root, whose writes leave set-user-ID and set-group-ID: the kernel removes them.
    pub(crate) acts_as_root: bool,
}

/// Answers the first request.
pub(crate) async fn negotiate(device: &Device, wishes: Wishes) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let len = device.read(&mut buffer).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    buffer.truncate(len);
    let refused = || io::Error::other("the kernel began without FUSE_INIT");
    let request = Request::new(buffer).filter(|r| r.opcode == Some(Opcode::Init));
    let request = request.ok_or_else(refused)?;
    let unique = request.header.unique;
    match reply(&request, wishes) {
        Some(record) => {
            device.reply(unique, record.as_bytes());
            Ok(())
        }
        None => {
            device.error(unique, Errno::PROTO);
            Err(io::Error::other(format!(
                "this kernel's FUSE protocol is older than {MAJOR}.{MINOR_MIN} (Linux 5.16)"
            )))
        }
    }
}

/// `fuse_init_out`. `None`: the kernel is too old.
fn reply(request: &Request, wishes: Wishes) -> Option<Record> {
    let mut fields = request.fields();
    let (major, minor, read_ahead) = (fields.u32()?, fields.u32()?, fields.u32()?);
    if (major, minor) < (MAJOR, MINOR_MIN) {
        return None;
    }
    let (low, high) = (fields.u32()?, fields.u32()?);
    let offered = u64::from(low) | u64::from(high) << 32;
    let idmap = if wishes.idmap { InitFlags::ALLOW_IDMAP } else { 0 };
    let by_server = if wishes.acts_as_root { 0 } else { InitFlags::HANDLE_KILLPRIV_V2 };
    let flags = offered & (FEATURES | idmap | by_server);
    let max_pages = wishes.io_len_max.div_ceil(PAGE_LEN).min(u16::MAX.into()) as u16;
    let record = Record::default()
        .u32(MAJOR)
        .u32(MINOR.min(minor))
        .u32(read_ahead.min(wishes.read_ahead_bytes))
        .u32(flags as u32)
        .u16(BACKGROUND_MAX)
        .u16(BACKGROUND_MAX)
        .u32(wishes.io_len_max)
        .u32(1)
        .u16(max_pages)
        .u16(0)
        .u32((flags >> 32) as u32);
    Some(record.zeros(28))
}

const FEATURES: u64 = InitFlags::ASYNC_READ
    | InitFlags::POSIX_LOCKS
    | InitFlags::FLOCK_LOCKS
    | InitFlags::BIG_WRITES
    | InitFlags::DO_READDIRPLUS
    | InitFlags::READDIRPLUS_AUTO
    | InitFlags::ASYNC_DIO
    | InitFlags::PARALLEL_DIROPS
    | InitFlags::ABORT_ERROR
    | InitFlags::MAX_PAGES
    | InitFlags::INIT_EXT;

/// Read-ahead and write-back requests in flight.
const BACKGROUND_MAX: u16 = 64;
const PAGE_LEN: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32) -> Request {
        let mut bytes = vec![0; 40];
        bytes[4..8].copy_from_slice(&26_u32.to_ne_bytes());
        for field in [MAJOR, minor, 128 << 10, u32::MAX, u32::MAX] {
            bytes.extend(field.to_ne_bytes());
        }
        Request::new(bytes).unwrap()
    }

    #[test]
    fn takes_idmap_only_if_asked_and_refuses_old_kernel() {
        let wishes = |idmap| Wishes {
            io_len_max: 1 << 20,
            read_ahead_bytes: 4 << 20,
            idmap,
            acts_as_root: idmap,
        };
        let flags = |idmap, at: usize| {
            let record = reply(&init(41), wishes(idmap)).unwrap();
            assert_eq!(record.as_bytes().len(), 64);
            u32::from_ne_bytes(record.as_bytes()[at..at + 4].try_into().unwrap())
        };
        assert_eq!((flags(false, 32), flags(true, 32)), (0, 1 << 8));
        assert_eq!(u64::from(flags(false, 12) ^ flags(true, 12)), InitFlags::HANDLE_KILLPRIV_V2);
        assert!(reply(&init(35), wishes(false)).is_none());
    }
}
