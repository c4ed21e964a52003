use std::io::Write as _;
use std::time::Duration;

use vouch_nfs4::ClientId;
use vouch_nfs4::op::{Args, DestroyClientidArgs, DestroySessionArgs};
use vouch_xdr::Writer;

use super::{Pipeline, exchange};
use crate::tls::Stream;
use crate::{CallKind, Core, Error};

/// The lease ends what a silent server keeps.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const REPLY_LEN_MAX: usize = 64 << 10;

impl Drop for Pipeline {
    fn drop(&mut self) {
        let submitter = &mut self.submitter;
        let mut idle = self
            .connections
            .iter_mut()
            .zip(&submitter.outputs)
            .filter(|(_, output)| output.is_sent());
        let Some((connection, _)) = idle.next() else { return };
        if submitter.in_flight == 0 {
            let _ = end_session(&mut connection.stream, &mut submitter.core, self.client);
        }
        if let Some((_, record)) = submitter.core.destroy_context() {
            let _ = connection.stream.write(&record);
        }
    }
}

fn end_session(stream: &mut Stream, core: &mut Core, client: ClientId) -> Result<(), Error> {
    let Some(session) = core.session() else { return Ok(()) };
    stream.socket().set_nonblocking(false)?;
    stream.socket().set_read_timeout(Some(END_TIMEOUT))?;
    stream.socket().set_write_timeout(Some(END_TIMEOUT))?;
    for args in [
        Args::DestroySession(DestroySessionArgs { session }),
        Args::DestroyClientid(DestroyClientidArgs { client }),
    ] {
        let mut w = Writer::new();
        let mut call = core.begin(0, CallKind::Sessionless, &mut w)?.ok_or(Error::Lost)?;
        call.op(&mut w, &args);
        core.end(call, &mut w)?;
        let record = exchange(stream, w.as_bytes(), REPLY_LEN_MAX, |_, _| {})?;
        core.reply(&record, &mut Vec::new())?;
    }
    Ok(())
}
