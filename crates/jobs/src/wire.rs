//! Messages between scheduler, broker and agents: JSON, and the tickets behind it as bytes.
//!
//! ```text
//! 4 bytes  length of the JSON text, big endian
//! n bytes  JSON text
//! rest     tickets: a credential cache file, or nothing
//! ```
//!
//! The tickets stay out of the JSON text, so that one buffer holds them and is wiped.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::names::{JobId, NodeName, UserName};
use crate::pods::PodToken;

/// A request to the broker, or to the agent of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The scheduler: a job begins, or its nodes or deadline have changed.
    Begin { job: JobId, user: UserName, nodes: Vec<NodeName>, deadline_s: u64 },
    /// The scheduler: a job has ended.
    End { job: JobId },
    /// The scheduler: list the jobs.
    List,
    /// An agent: tickets for a job on its node.
    Fetch { node: NodeName, agent: String, job: JobId },
    /// An agent: which of these jobs have ended?
    Sync { node: NodeName, jobs: Vec<JobId> },
    /// An agent: a pod begins on its node, and shows its token. Its job is registered until the token's end.
    Pod { node: NodeName, job: JobId, token: PodToken },
    /// An agent: it has removed the tickets of a job.
    Left { node: NodeName, agent: String, job: JobId, why: String },
    /// The prolog of this machine: a job begins here. The agent answers when the tickets are there.
    Enter { job: JobId, uid: Option<u32> },
    /// The driver of this machine's pods: as `Enter`, by the token of the pod. With `owns_cache` the tickets
    /// are in a cache of this job alone, and the answer is its path.
    EnterPod {
        job: JobId,
        token: PodToken,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        owns_cache: bool,
    },
    /// The epilog of this machine: a job has ended here. The tickets are gone when the agent answers.
    Leave { job: JobId },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    Done,
    /// The tickets of a pod are here.
    Cache {
        path: PathBuf,
    },
    /// The job is registered until then, which may be earlier than asked.
    Begun {
        deadline_s: u64,
    },
    /// The tickets follow the text.
    Tickets {
        user: UserName,
        uid: u32,
        principal: String,
        /// End of the tickets, seconds since 1970.
        end_s: u64,
        deadline_s: u64,
    },
    Gone {
        jobs: Vec<JobId>,
    },
    Jobs {
        jobs: Vec<JobView>,
    },
    /// A decision: asking again changes nothing.
    Refused {
        reason: String,
    },
    /// A failure that may pass: the KDC, the disk.
    Unavailable {
        reason: String,
    },
}

/// A job as `vouch jobs list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    pub job: JobId,
    pub user: UserName,
    pub uid: u32,
    pub nodes: Vec<NodeName>,
    pub begun_s: u64,
    pub deadline_s: u64,
    pub ended_s: Option<u64>,
    /// Nodes that hold tickets, with the tickets' end.
    pub holders: Vec<(NodeName, u64)>,
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the message is shorter than it says")]
    Cut,
    #[error("the message is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// A message with tickets, or without if they are empty.
pub fn encode(message: &impl Serialize, tickets: &[u8]) -> Zeroizing<Vec<u8>> {
    let text = serde_json::to_string(message).expect("names, numbers and lists serialize");
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 + text.len() + tickets.len()));
    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(tickets);
    bytes
}

/// The message and its tickets.
///
/// # Errors
/// If the bytes are cut or no such message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), WireError> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or(WireError::Cut)?;
    let (text, tickets) =
        rest.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or(WireError::Cut)?;
    Ok((serde_json::from_slice(text)?, tickets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn message_and_tickets_arrive() {
        let reply = Reply::Tickets {
            user: UserName::parse("alice").unwrap(),
            uid: 1000,
            principal: "alice@EXAMPLE.ORG".into(),
            end_s: 1,
            deadline_s: 2,
        };
        let bytes = encode(&reply, b"\x05\x04tickets");
        assert_eq!(decode::<Reply>(&bytes).unwrap(), (reply, &b"\x05\x04tickets"[..]));
    }

    #[test]
    fn unknown_requests_and_names_are_refused() {
        for text in [
            r#"{"request":"steal"}"#,
            r#"{"request":"end","job":"a/b"}"#,
            r#"{"request":"end","job":"1","more":1}"#,
            "[]",
            "",
        ] {
            let bytes = [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
            assert!(matches!(decode::<Request>(&bytes), Err(WireError::Malformed(_))), "{text}");
        }
        assert!(matches!(decode::<Request>(b"\0\0\0\x05[]"), Err(WireError::Cut)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
            let _ = decode::<Request>(&bytes);
        }
    }
}
