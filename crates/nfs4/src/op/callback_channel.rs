//! BACKCHANNEL_CTL and BIND_CONN_TO_SESSION (RFC 8881, sections 18.33 and 18.34).

use crate::macros::{wire_enum, wire_struct};
use crate::{CallbackSec, List, SEC_PARMS_MAX, SessionId};

wire_struct! {
    /// `BACKCHANNEL_CTL4args`.
    pub struct BackchannelCtlArgs<'a> {
        /// The client's callback program.
        pub program: u32,
        /// How callbacks may be authenticated.
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_enum! {
    /// What a client wants a connection to carry (`channel_dir_from_client4`).
    pub enum ChannelDirClient = "channel_dir_from_client4" {
        /// Calls.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Calls, or both.
        ForeOrBoth = 3,
        /// Callbacks, or both.
        BackOrBoth = 7,
    }
}

wire_enum! {
    /// What it carries (`channel_dir_from_server4`).
    pub enum ChannelDirServer = "channel_dir_from_server4" {
        /// Calls.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Both.
        Both = 3,
    }
}

wire_struct! {
    /// `BIND_CONN_TO_SESSION4args`.
    #[derive(Copy)]
    pub struct BindConnArgs {
        /// The session.
        pub session: SessionId,
        /// What to carry.
        pub dir: ChannelDirClient,
        /// Whether to use RDMA.
        pub rdma: bool,
    }
}

wire_struct! {
    /// `BIND_CONN_TO_SESSION4resok`.
    #[derive(Copy)]
    pub struct BindConnOk {
        /// The session.
        pub session: SessionId,
        /// What is carried.
        pub dir: ChannelDirServer,
        /// Whether RDMA is used.
        pub rdma: bool,
    }
}
