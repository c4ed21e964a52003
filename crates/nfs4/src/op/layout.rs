//! Parallel NFS, as far as it must be read to be refused: GETDEVICEINFO, GETDEVICELIST and LAYOUT*
//! (RFC 8881, sections 18.40 to 18.44; RFC 7862, sections 15.6 and 15.7). Bodies of layout types
//! stay opaque.

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_enum, wire_failure, wire_struct};
use crate::{Bitmap, Bytes, Cookie, DeviceId, List, Stateid, Status, Time, Verifier, Wire};

/// Longest body that a layout type explains.
const LAYOUT_BODY_LEN_MAX: usize = 64 * 1024;
/// Most layouts, devices or errors in one list.
const LAYOUT_LIST_MAX: usize = 1024;

wire_enum! {
    /// What a layout is for (`layoutiomode4`).
    pub enum LayoutIoMode = "layoutiomode4" {
        /// Reading.
        Read = 1,
        /// Both.
        ReadWrite = 2,
        /// Any, when it is returned or recalled.
        Any = 3,
    }
}

wire_struct! {
    /// Where a device is (`device_addr4`).
    #[derive(Copy)]
    pub struct DeviceAddr<'a> {
        /// The layout's type.
        pub kind: u32,
        /// What the type makes of it.
        pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX>,
    }
}

wire_struct! {
    /// `GETDEVICEINFO4args`.
    #[derive(Copy)]
    pub struct GetdeviceinfoArgs {
        /// The device.
        pub device: DeviceId,
        /// The layout's type.
        pub kind: u32,
        /// Most bytes of the result's body.
        pub max_count: u32,
        /// Which notifications.
        pub notifications: Bitmap,
    }
}

wire_struct! {
    /// `GETDEVICEINFO4resok`.
    #[derive(Copy)]
    pub struct GetdeviceinfoOk<'a> {
        /// Where it is.
        pub address: DeviceAddr<'a>,
        /// Which notifications will come.
        pub notifications: Bitmap,
    }
}

wire_failure! {
    /// How GETDEVICEINFO fails.
    pub enum GetdeviceinfoFailure {
        /// It takes so many bytes.
        TOOSMALL => TooSmall(u32)
    }
}

wire_struct! {
    /// `GETDEVICELIST4args`.
    #[derive(Copy)]
    pub struct GetdevicelistArgs {
        /// The layout's type.
        pub kind: u32,
        /// Most devices.
        pub devices_max: u32,
        /// After which.
        pub cookie: Cookie,
        /// What came with it.
        pub verifier: Verifier,
    }
}

wire_struct! {
    /// `GETDEVICELIST4resok`.
    pub struct GetdevicelistOk {
        /// Where to go on.
        pub cookie: Cookie,
        /// To be sent with it.
        pub verifier: Verifier,
        /// The devices.
        pub devices: List<DeviceId, LAYOUT_LIST_MAX>,
        /// Whether they are the last.
        pub eof: bool,
    }
}

wire_struct! {
    /// `LAYOUTCOMMIT4args`.
    #[derive(Copy)]
    pub struct LayoutcommitArgs<'a> {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// Whether the server restarted.
        pub reclaim: bool,
        /// The layout.
        pub stateid: Stateid,
        /// The last byte written.
        pub last_write_offset: Option<u64>,
        /// When.
        pub time_modify: Option<Time>,
        /// What the type makes of it.
        pub update: DeviceAddr<'a>,
    }
}

wire_struct! {
    /// `LAYOUTCOMMIT4resok`.
    #[derive(Copy)]
    pub struct LayoutcommitOk {
        /// The new size.
        pub size: Option<u64>,
    }
}

wire_struct! {
    /// `LAYOUTGET4args`.
    #[derive(Copy)]
    pub struct LayoutgetArgs {
        /// Whether to be told when there is one.
        pub signal: bool,
        /// The layout's type.
        pub kind: u32,
        /// What it is for.
        pub iomode: LayoutIoMode,
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// How many at least.
        pub length_min: u64,
        /// An open or a layout.
        pub stateid: Stateid,
        /// Most bytes of the result's body.
        pub max_count: u32,
    }
}

wire_struct! {
    /// A layout (`layout4`).
    #[derive(Copy)]
    pub struct Layout<'a> {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// What it is for.
        pub iomode: LayoutIoMode,
        /// What the type makes of it.
        pub content: DeviceAddr<'a>,
    }
}

wire_struct! {
    /// `LAYOUTGET4resok`.
    pub struct LayoutgetOk<'a> {
        /// Whether to return it at CLOSE.
        pub return_on_close: bool,
        /// The layouts' stateid.
        pub stateid: Stateid,
        /// The layouts.
        pub layouts: List<Layout<'a>, LAYOUT_LIST_MAX>,
    }
}

wire_failure! {
    /// How LAYOUTGET fails.
    pub enum LayoutgetFailure {
        /// Not now; whether the client will be told.
        LAYOUTTRYLATER => TryLater(bool)
    }
}

wire_struct! {
    /// A part of a file (`layoutreturn_file4`).
    #[derive(Copy)]
    pub struct LayoutReturnFile<'a> {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// The layout.
        pub stateid: Stateid,
        /// What the type makes of it.
        pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX>,
    }
}

/// What is returned (`layoutreturn4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutReturn<'a> {
    /// The layouts of a file.
    File(LayoutReturnFile<'a>),
    /// Those of a file system.
    Fsid,
    /// All.
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
        /// Whether the server restarted.
        pub reclaim: bool,
        /// The layout's type.
        pub kind: u32,
        /// What it was for.
        pub iomode: LayoutIoMode,
        /// What is returned.
        pub what: LayoutReturn<'a>,
    }
}

wire_struct! {
    /// The result of LAYOUTRETURN.
    #[derive(Copy)]
    pub struct LayoutreturnOk {
        /// What remains of the layout.
        pub stateid: Option<Stateid>,
    }
}

wire_struct! {
    /// An error of a device (`device_error4`).
    #[derive(Copy)]
    pub struct DeviceError {
        /// The device.
        pub device: DeviceId,
        /// What it said.
        pub status: Status,
        /// To which operation.
        pub op: u32,
    }
}

wire_struct! {
    /// `LAYOUTERROR4args`.
    pub struct LayouterrorArgs {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// The layout.
        pub stateid: Stateid,
        /// The errors.
        pub errors: List<DeviceError, LAYOUT_LIST_MAX>,
    }
}

wire_struct! {
    /// How much (`io_info4`).
    #[derive(Copy)]
    pub struct IoInfo {
        /// Operations.
        pub count: u64,
        /// Bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// `LAYOUTSTATS4args`.
    #[derive(Copy)]
    pub struct LayoutstatsArgs<'a> {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// The layout.
        pub stateid: Stateid,
        /// What was read.
        pub read: IoInfo,
        /// What was written.
        pub write: IoInfo,
        /// The device.
        pub device: DeviceId,
        /// What the type makes of it.
        pub update: DeviceAddr<'a>,
    }
}
