//! Operations on sessions and clients.

use crate::macros::{wire_copy, wire_enum, wire_struct};
use crate::{Bytes, CallbackSec, ClientId, List, SEC_PARMS_MAX, SessionId};

// BACKCHANNEL_CTL and BIND_CONN_TO_SESSION (RFC 8881 §18.33 and 18.34).

wire_struct! {
    pub struct BackchannelCtlArgs<'a> {
        pub program: u32,
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_enum! {
    pub enum ChannelDirClient = "channel_dir_from_client4" {
        Fore = 1,
        Back = 2,
        ForeOrBoth = 3,
        BackOrBoth = 7,
    }
}

wire_enum! {
    pub enum ChannelDirServer = "channel_dir_from_server4" {
        Fore = 1,
        Back = 2,
        Both = 3,
    }
}

wire_copy! {
    pub struct BindConnArgs {
        pub session: SessionId,
        pub dir: ChannelDirClient,
        pub rdma: bool,
    }

    pub struct BindConnOk {
        pub session: SessionId,
        pub dir: ChannelDirServer,
        pub rdma: bool,
    }
}

// DESTROY_SESSION, DESTROY_CLIENTID and RECLAIM_COMPLETE (RFC 8881 §18.37, 18.50 and 18.51).

wire_copy! {
    pub struct DestroySessionArgs { pub session: SessionId }
    pub struct DestroyClientidArgs { pub client: ClientId }
    pub struct ReclaimCompleteArgs { pub one_fs: bool }
}

// SET_SSV (RFC 8881 §18.47).

/// Longer than any hash.
const SSV_LEN_MAX: usize = 1024;

wire_copy! {
    pub struct SetSsvArgs<'a> {
        pub ssv: Bytes<'a, SSV_LEN_MAX>,
        pub digest: Bytes<'a, SSV_LEN_MAX>,
    }

    pub struct SetSsvOk<'a> { pub digest: Bytes<'a, SSV_LEN_MAX> }
}
