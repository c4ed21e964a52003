//! Sends a key statement to a replica: one call of PUTSTATEMENT.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, ReplyBody};
use vouch_tree::TreeName;
use vouch_tree::protocol::{PROGRAM, Procedure, PutStatementArgs, PutStatementResult, VERSION};
use vouch_tree::statement::KeyStatement;
use vouch_xdr::Xdr as _;

use crate::exit::{Failure, Outcome};

pub(crate) fn send(replica: &str, statement: &KeyStatement) -> Outcome {
    let place = TreeName::new(replica, statement.hostid())?;
    let unreachable = |why: &dyn std::fmt::Display| {
        Failure::new(replica, vouch_daemon::failure::Why::Unreachable(why.to_string()))
    };
    let addresses =
        (place.host(), place.port()).to_socket_addrs().map_err(|error| unreachable(&error))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(mut stream) => {
                let result = call(&mut stream, statement).map_err(|why| unreachable(&why))?;
                return outcome_of(replica, result);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| unreachable(&"the name has no address"), |error| unreachable(&error)))
}

fn outcome_of(replica: &str, result: PutStatementResult) -> Outcome {
    let why = match result {
        PutStatementResult::Stored | PutStatementResult::Known => return Ok(()),
        PutStatementResult::NotAccepted => {
            "takes no statements; start it with `vouch serve --accept-statements DIR`"
        }
        PutStatementResult::NoTree => "serves no tree of this key",
        PutStatementResult::Invalid => "finds the signature invalid",
        PutStatementResult::TryLater => "is busy or its disk failed; try again later",
    };
    Err(Failure::refused(replica, why))
}

fn call(stream: &mut TcpStream, statement: &KeyStatement) -> Result<PutStatementResult, String> {
    let io = |error: std::io::Error| error.to_string();
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
        .map_err(io)?;
    let args = PutStatementArgs { statement: statement.to_xdr() }.to_xdr();
    let call = Call::new(XID, (PROGRAM, VERSION), Procedure::PutStatement as u32, &args);
    stream.write_all(&vouch_oncrpc::record(|w| call.encode(w))).map_err(io)?;

    let mut records = RecordReader::new(REPLY_LEN_MAX);
    let mut buffer = [0; REPLY_LEN_MAX];
    loop {
        let count = stream.read(&mut buffer).map_err(io)?;
        if count == 0 {
            return Err("closed the connection".into());
        }
        let mut input = &buffer[..count];
        let Some(reply) = records.next(&mut input).map_err(|error| error.to_string())? else {
            continue;
        };
        let reply = Reply::decode(&reply).map_err(|error| error.to_string())?;
        return match reply.body {
            ReplyBody::Accepted { outcome: Accepted::Success(results), .. } if reply.xid == XID => {
                PutStatementResult::from_xdr(results).map_err(|error| error.to_string())
            }
            ReplyBody::Accepted { outcome: Accepted::ProcUnavail, .. } => {
                Ok(PutStatementResult::NotAccepted)
            }
            _ => Err("answered with another message".into()),
        };
    }
}

const XID: u32 = 1;

const REPLY_LEN_MAX: usize = 1024;

const TIMEOUT: Duration = Duration::from_secs(10);
