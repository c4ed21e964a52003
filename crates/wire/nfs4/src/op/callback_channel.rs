//! BACKCHANNEL_CTL and BIND_CONN_TO_SESSION (RFC 8881 §18.33 and 18.34).

use crate::macros::{wire_enum, wire_struct};
use crate::{CallbackSec, List, SEC_PARMS_MAX, SessionId};

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

wire_struct! {
    #[derive(Copy)]
    pub struct BindConnArgs {
        pub session: SessionId,
        pub dir: ChannelDirClient,
        pub rdma: bool,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct BindConnOk {
        pub session: SessionId,
        pub dir: ChannelDirServer,
        pub rdma: bool,
    }
}
