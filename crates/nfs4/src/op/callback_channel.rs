//! BACKCHANNEL_CTL and BIND_CONN_TO_SESSION (RFC 8881, sections 18.33 and 18.34).

use crate::macros::{wire_enum, wire_struct};
use crate::{CallbackSec, List, SEC_PARMS_MAX, SessionId};

wire_struct! {
    /// `BACKCHANNEL_CTL4args`.
    pub struct BackchannelCtlArgs<'a> {
        /// Number of the client's callback program.
        pub program: u32,
        /// Security parameters of callbacks.
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_enum! {
    /// Channels that a client requests for a connection (`channel_dir_from_client4`).
    pub enum ChannelDirClient = "channel_dir_from_client4" {
        /// The fore channel.
        Fore = 1,
        /// The back channel.
        Back = 2,
        /// The fore channel; the server can add the back channel.
        ForeOrBoth = 3,
        /// The back channel; the server can add the fore channel.
        BackOrBoth = 7,
    }
}

wire_enum! {
    /// Channels of a connection (`channel_dir_from_server4`).
    pub enum ChannelDirServer = "channel_dir_from_server4" {
        /// The fore channel.
        Fore = 1,
        /// The back channel.
        Back = 2,
        /// Both channels.
        Both = 3,
    }
}

wire_struct! {
    /// `BIND_CONN_TO_SESSION4args`.
    #[derive(Copy)]
    pub struct BindConnArgs {
        /// The session.
        pub session: SessionId,
        /// Requested channels.
        pub dir: ChannelDirClient,
        /// Whether the client requests RDMA.
        pub rdma: bool,
    }
}

wire_struct! {
    /// `BIND_CONN_TO_SESSION4resok`.
    #[derive(Copy)]
    pub struct BindConnOk {
        /// The session.
        pub session: SessionId,
        /// Granted channels.
        pub dir: ChannelDirServer,
        /// Whether the connection uses RDMA.
        pub rdma: bool,
    }
}
