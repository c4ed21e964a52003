//! Parallel NFS operations: GETDEVICEINFO, GETDEVICELIST and LAYOUT* (RFC 8881, sections 18.40 to
//! 18.44; RFC 7862, sections 15.6 and 15.7). Bodies of layout types stay opaque, because the server
//! refuses these operations.

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_enum, wire_failure, wire_struct};
use crate::{Bitmap, Bytes, Cookie, DeviceId, List, Stateid, Status, Time, Verifier, Wire};

/// Maximum length of an opaque body of a layout type.
const LAYOUT_BODY_LEN_MAX: usize = 64 * 1024;
/// Maximum number of layouts, devices or errors in one list.
const LAYOUT_LIST_MAX: usize = 1024;

wire_enum! {
    /// I/O mode of a layout (`layoutiomode4`).
    pub enum LayoutIoMode = "layoutiomode4" {
        /// Layout for reading.
        Read = 1,
        /// Layout for reading and writing.
        ReadWrite = 2,
        /// Layouts of both modes, in LAYOUTRETURN and CB_LAYOUTRECALL.
        Any = 3,
    }
}

wire_struct! {
    /// Address of a device (`device_addr4`).
    #[derive(Copy)]
    pub struct DeviceAddr<'a> {
        /// Layout type.
        pub kind: u32,
        /// Body, as defined by the layout type.
        pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX>,
    }
}

wire_struct! {
    /// `GETDEVICEINFO4args`.
    #[derive(Copy)]
    pub struct GetdeviceinfoArgs {
        /// The device.
        pub device: DeviceId,
        /// Layout type.
        pub kind: u32,
        /// Maximum length of the result's body.
        pub max_count: u32,
        /// Requested notifications.
        pub notifications: Bitmap,
    }
}

wire_struct! {
    /// `GETDEVICEINFO4resok`.
    #[derive(Copy)]
    pub struct GetdeviceinfoOk<'a> {
        /// Address of the device.
        pub address: DeviceAddr<'a>,
        /// Notifications that the server will send.
        pub notifications: Bitmap,
    }
}

wire_failure! {
    /// Failure of GETDEVICEINFO.
    pub enum GetdeviceinfoFailure {
        /// The result needs this number of bytes.
        TOOSMALL => TooSmall(u32)
    }
}

wire_struct! {
    /// `GETDEVICELIST4args`.
    #[derive(Copy)]
    pub struct GetdevicelistArgs {
        /// Layout type.
        pub kind: u32,
        /// Maximum number of devices in the reply.
        pub devices_max: u32,
        /// Position after which the list continues.
        pub cookie: Cookie,
        /// Verifier of the cookie.
        pub verifier: Verifier,
    }
}

wire_struct! {
    /// `GETDEVICELIST4resok`.
    pub struct GetdevicelistOk {
        /// Position at which the next call continues.
        pub cookie: Cookie,
        /// Verifier of the cookie.
        pub verifier: Verifier,
        /// The devices.
        pub devices: List<DeviceId, LAYOUT_LIST_MAX>,
        /// Whether the list is complete.
        pub eof: bool,
    }
}

wire_struct! {
    /// `LAYOUTCOMMIT4args`.
    #[derive(Copy)]
    pub struct LayoutcommitArgs<'a> {
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Whether the client reclaims the layout after a server restart.
        pub reclaim: bool,
        /// Stateid of the layout.
        pub stateid: Stateid,
        /// Offset of the last byte written.
        pub last_write_offset: Option<u64>,
        /// Modification time to set.
        pub time_modify: Option<Time>,
        /// Update, as defined by the layout type.
        pub update: DeviceAddr<'a>,
    }
}

wire_struct! {
    /// `LAYOUTCOMMIT4resok`.
    #[derive(Copy)]
    pub struct LayoutcommitOk {
        /// New size of the file, if it changed.
        pub size: Option<u64>,
    }
}

wire_struct! {
    /// `LAYOUTGET4args`.
    #[derive(Copy)]
    pub struct LayoutgetArgs {
        /// Whether the server signals when a layout becomes available.
        pub signal: bool,
        /// Layout type.
        pub kind: u32,
        /// I/O mode of the layout.
        pub iomode: LayoutIoMode,
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Minimum length of the range.
        pub length_min: u64,
        /// Stateid of the open or of the layout.
        pub stateid: Stateid,
        /// Maximum length of the result's body.
        pub max_count: u32,
    }
}

wire_struct! {
    /// A layout (`layout4`).
    #[derive(Copy)]
    pub struct Layout<'a> {
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// I/O mode of the layout.
        pub iomode: LayoutIoMode,
        /// Content, as defined by the layout type.
        pub content: DeviceAddr<'a>,
    }
}

wire_struct! {
    /// `LAYOUTGET4resok`.
    pub struct LayoutgetOk<'a> {
        /// Whether the client returns the layout at CLOSE.
        pub return_on_close: bool,
        /// Stateid of the layouts.
        pub stateid: Stateid,
        /// The layouts.
        pub layouts: List<Layout<'a>, LAYOUT_LIST_MAX>,
    }
}

wire_failure! {
    /// Failure of LAYOUTGET.
    pub enum LayoutgetFailure {
        /// No layout is available; the flag says whether the server will signal when one is.
        LAYOUTTRYLATER => TryLater(bool)
    }
}

wire_struct! {
    /// Range of a file (`layoutreturn_file4`).
    #[derive(Copy)]
    pub struct LayoutReturnFile<'a> {
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Stateid of the layout.
        pub stateid: Stateid,
        /// Body, as defined by the layout type.
        pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX>,
    }
}

/// Layouts to return (`layoutreturn4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutReturn<'a> {
    /// Layouts of one file.
    File(LayoutReturnFile<'a>),
    /// Layouts of one file system.
    Fsid,
    /// All layouts of the client.
    All,
}

impl<'a> Wire<'a> for LayoutReturn<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        match r.u32()? {
            1 => LayoutReturnFile::decode(r).map(Self::File),
            2 => Ok(Self::Fsid),
            3 => Ok(Self::All),
            value => Err(Error::Unknown { what: "layoutreturn_type4", value }),
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::File(file) => {
                w.u32(1);
                file.encode(w);
            }
            Self::Fsid => w.u32(2),
            Self::All => w.u32(3),
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match s.below(3) {
            0 => Self::File(LayoutReturnFile::sample(s)),
            1 => Self::Fsid,
            _ => Self::All,
        }
    }
}

wire_struct! {
    /// `LAYOUTRETURN4args`.
    #[derive(Copy)]
    pub struct LayoutreturnArgs<'a> {
        /// Whether the client returns the layout after a server restart.
        pub reclaim: bool,
        /// Layout type.
        pub kind: u32,
        /// I/O mode of the layouts.
        pub iomode: LayoutIoMode,
        /// Layouts to return.
        pub what: LayoutReturn<'a>,
    }
}

wire_struct! {
    /// Result of LAYOUTRETURN.
    #[derive(Copy)]
    pub struct LayoutreturnOk {
        /// Stateid of the remaining layout.
        pub stateid: Option<Stateid>,
    }
}

wire_struct! {
    /// An error of a device (`device_error4`).
    #[derive(Copy)]
    pub struct DeviceError {
        /// The device.
        pub device: DeviceId,
        /// Status from the device.
        pub status: Status,
        /// Operation that failed.
        pub op: u32,
    }
}

wire_struct! {
    /// `LAYOUTERROR4args`.
    pub struct LayouterrorArgs {
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Stateid of the layout.
        pub stateid: Stateid,
        /// The errors.
        pub errors: List<DeviceError, LAYOUT_LIST_MAX>,
    }
}

wire_struct! {
    /// Amount of I/O (`io_info4`).
    #[derive(Copy)]
    pub struct IoInfo {
        /// Number of operations.
        pub count: u64,
        /// Number of bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// `LAYOUTSTATS4args`.
    #[derive(Copy)]
    pub struct LayoutstatsArgs<'a> {
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Stateid of the layout.
        pub stateid: Stateid,
        /// Amount of reads.
        pub read: IoInfo,
        /// Amount of writes.
        pub write: IoInfo,
        /// The device.
        pub device: DeviceId,
        /// Update, as defined by the layout type.
        pub update: DeviceAddr<'a>,
    }
}
