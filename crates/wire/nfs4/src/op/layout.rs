//! GETDEVICEINFO, GETDEVICELIST and LAYOUT* (RFC 8881, sections 18.40 to 18.44; RFC 7862, sections
//! 15.6 and 15.7). Bodies of layout types stay opaque: see [`crate::flex_files`].

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_copy, wire_enum, wire_failure, wire_struct};
use crate::{Bitmap, Bytes, Cookie, DeviceId, List, Stateid, Status, Time, Verifier, Wire};

const LAYOUT_BODY_LEN_MAX: usize = 64 * 1024;
/// Layouts, devices or errors in one list.
const LAYOUT_LIST_MAX: usize = 1024;

wire_enum! {
    pub enum LayoutIoMode = "layoutiomode4" {
        Read = 1,
        ReadWrite = 2,
        Any = 3,
    }
}

wire_copy! {
    pub struct DeviceAddr<'a> { pub kind: u32, pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX> }

    pub struct GetdeviceinfoArgs {
        pub device: DeviceId,
        pub kind: u32,
        /// Of the result's body, bytes.
        pub max_count: u32,
        pub notifications: Bitmap,
    }

    pub struct GetdeviceinfoOk<'a> { pub address: DeviceAddr<'a>, pub notifications: Bitmap }
}

wire_failure! {
    pub enum GetdeviceinfoFailure {
        TOOSMALL => TooSmall(u32)
    }
}

wire_copy! {
    pub struct GetdevicelistArgs {
        pub kind: u32,
        pub devices_max: u32,
        pub cookie: Cookie,
        pub verifier: Verifier,
    }
}

wire_struct! {
    pub struct GetdevicelistOk {
        pub cookie: Cookie,
        pub verifier: Verifier,
        pub devices: List<DeviceId, LAYOUT_LIST_MAX>,
        pub eof: bool,
    }
}

wire_copy! {
    pub struct LayoutcommitArgs<'a> {
        pub offset: u64,
        pub length: u64,
        pub reclaim: bool,
        pub stateid: Stateid,
        pub last_write_offset: Option<u64>,
        pub time_modify: Option<Time>,
        pub update: DeviceAddr<'a>,
    }

    pub struct LayoutcommitOk { pub size: Option<u64> }

    pub struct LayoutgetArgs {
        pub signal: bool,
        pub kind: u32,
        pub iomode: LayoutIoMode,
        pub offset: u64,
        pub length: u64,
        pub length_min: u64,
        pub stateid: Stateid,
        /// Of the result's body, bytes.
        pub max_count: u32,
    }

    pub struct Layout<'a> {
        pub offset: u64,
        pub length: u64,
        pub iomode: LayoutIoMode,
        pub content: DeviceAddr<'a>,
    }
}

wire_struct! {
    pub struct LayoutgetOk<'a> {
        pub return_on_close: bool,
        pub stateid: Stateid,
        pub layouts: List<Layout<'a>, LAYOUT_LIST_MAX>,
    }
}

wire_failure! {
    pub enum LayoutgetFailure {
        LAYOUTTRYLATER => TryLater(bool)
    }
}

wire_copy! {
    pub struct LayoutReturnFile<'a> {
        pub offset: u64,
        pub length: u64,
        pub stateid: Stateid,
        pub body: Bytes<'a, LAYOUT_BODY_LEN_MAX>,
    }
}

/// `layoutreturn4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutReturn<'a> {
    File(LayoutReturnFile<'a>),
    Fsid,
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

wire_copy! {
    pub struct LayoutreturnArgs<'a> {
        pub reclaim: bool,
        pub kind: u32,
        pub iomode: LayoutIoMode,
        pub what: LayoutReturn<'a>,
    }

    pub struct LayoutreturnOk { pub stateid: Option<Stateid> }

    pub struct DeviceError {
        pub device: DeviceId,
        pub status: Status,
        pub op: u32,
    }
}

wire_struct! {
    pub struct LayouterrorArgs {
        pub offset: u64,
        pub length: u64,
        pub stateid: Stateid,
        pub errors: List<DeviceError, LAYOUT_LIST_MAX>,
    }
}

wire_copy! {
    pub struct IoInfo { pub count: u64, pub bytes: u64 }

    pub struct LayoutstatsArgs<'a> {
        pub offset: u64,
        pub length: u64,
        pub stateid: Stateid,
        pub read: IoInfo,
        pub write: IoInfo,
        pub device: DeviceId,
        pub update: DeviceAddr<'a>,
    }
}
