//! Bodies of flexible file layouts (RFC 8435).

use crate::macros::{wire_bits, wire_copy, wire_struct};
use crate::{Bytes, DeviceId, Filehandle, List, NetAddr, Stateid};

/// LAYOUT4_FLEX_FILES of `layouttype4`.
pub const LAYOUT_TYPE: u32 = 4;

/// Mirrors of a layout, data servers of a mirror, addresses and versions of a device.
const LIST_MAX: usize = 64;
/// A user or group is a decimal number.
const OWNER_LEN_MAX: usize = 128;

wire_copy! {
    /// `ff_device_versions4`.
    pub struct DeviceVersion {
        pub version: u32,
        pub minor: u32,
        /// Bytes of a READ.
        pub read_len_max: u32,
        /// Bytes of a WRITE.
        pub write_len_max: u32,
        /// The client calls the data server with its users' own credentials.
        pub is_tightly_coupled: bool,
    }
}

wire_struct! {
    /// `ff_device_addr4`: one data server.
    pub struct Device<'a> {
        pub addresses: List<NetAddr<'a>, LIST_MAX>,
        pub versions: List<DeviceVersion, LIST_MAX>,
    }

    /// `ff_data_server4`.
    pub struct DataServer<'a> {
        pub device: DeviceId,
        /// A larger number is better.
        pub efficiency: u32,
        pub stateid: Stateid,
        /// One for each version of the device, or one for all.
        pub handles: List<Filehandle, LIST_MAX>,
        pub user: Bytes<'a, OWNER_LEN_MAX>,
        pub group: Bytes<'a, OWNER_LEN_MAX>,
    }

    /// `ff_mirror4`: the data servers over which a copy is striped.
    pub struct Mirror<'a> { pub data_servers: List<DataServer<'a>, LIST_MAX> }
}

wire_bits! {
    /// `ff_flags4`.
    pub struct Flags {
        NO_LAYOUTCOMMIT = 1,
        NO_IO_THRU_MDS = 2,
        NO_READ_IO = 4,
        WRITE_ONE_MIRROR = 8,
    }
}

wire_struct! {
    /// `ff_layout4`.
    pub struct Layout<'a> {
        /// Bytes; zero without stripes.
        pub stripe_unit: u64,
        pub mirrors: List<Mirror<'a>, LIST_MAX>,
        pub flags: Flags,
        /// Seconds between reports of statistics; zero for none.
        pub stats_interval_s: u32,
    }
}
