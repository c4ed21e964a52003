//! Contexts for krb5, krb5i and krb5p. An [`Initiator`] establishes them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use vouch_nfs4::{PROGRAM, VERSION};
use vouch_oncrpc::{AuthStat, Flavor, OpaqueAuth, RecordReader, begin_record, end_record, record};
use vouch_rpcsec_gss::{
    CallWrap, ClientContext, ContextHandle, GssSeq, HANDLE_LEN, InitError, Initiated, Initiation,
    Initiator, OpenError, ReplyOpen, ReplyOpener, Service, long_wraps,
};
use vouch_xdr::Writer;

use crate::tls::Stream;
use crate::{
    CallTag, CallbackSecurity, Error, IncomingReply, Opener, OutgoingCall, Protection,
    ProtectionError, TlsClient,
};

/// A new protection after the server has lost the context. May block.
pub type Renewal = Arc<
    dyn Fn() -> Result<Box<dyn Protection>, Box<dyn std::error::Error + Send + Sync>> + Send + Sync,
>;

/// The server lacks the context (RFC 2203 §5.3.3.3).
pub(crate) fn is_context_denial(stat: AuthStat) -> bool {
    matches!(stat, AuthStat::RPCSEC_GSS_CRED_PROBLEM | AuthStat::RPCSEC_GSS_CTX_PROBLEM)
}

/// Also if no sequence numbers are left (RFC 2203 §5.3.3.1: MAXSEQ).
pub(crate) fn needs_new_context(error: &Error) -> bool {
    match error {
        Error::Denied(stat) => is_context_denial(*stat),
        Error::Protection(error) => *error == ProtectionError::NoContext,
        _ => false,
    }
}

/// Protection of calls by RPCSEC_GSS in one context.
pub struct GssProtection {
    context: ClientContext,
    random: Box<Random>,
}

struct Random {
    bytes: [u8; 4096],
    used: usize,
}

/// Why no context is established.
#[derive(Debug, thiserror::Error)]
pub enum GssError<E> {
    /// The mechanism or the server refuses.
    #[error(transparent)]
    Init(#[from] InitError<E>),
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The server does not speak RPC.
    #[error("cannot read the server's record stream: {0}")]
    Stream(#[from] vouch_oncrpc::RecordError),
}

/// Establishes a context over a temporary connection. Blocks for at most 30 seconds whenever the
/// server is silent. Fails without a ticket, or if either side refuses the other.
pub fn establish<I: Initiator>(
    address: SocketAddr,
    initiator: I,
    service: Service,
) -> Result<GssProtection, GssError<I::Error>> {
    establish_with(address, None, initiator, service)
}

/// Like [`establish`], over TLS if given.
pub fn establish_with<I: Initiator>(
    address: SocketAddr,
    tls: Option<&TlsClient>,
    initiator: I,
    service: Service,
) -> Result<GssProtection, GssError<I::Error>> {
    let mut initiation = Initiation::begin(initiator, service)?;
    let stream = TcpStream::connect_timeout(&address, SERVER_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
    stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
    let mut stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => {
            tls.upgrade(stream).map_err(|error| std::io::Error::other(error.to_string()))?
        }
    };
    let mut reader = RecordReader::new(REPLY_LEN_MAX);
    for xid in 1.. {
        stream.write_all(&record(|w| initiation.call(xid, PROGRAM, VERSION, w)))?;
        initiation = match initiation.reply(xid, &read_record(&mut stream, &mut reader)?)? {
            Initiated::Again(again) => again,
            Initiated::Done(context) => return Ok(GssProtection::new(context)),
        };
    }
    unreachable!("the loop returns when the context is complete")
}

fn read_record<E>(stream: &mut Stream, reader: &mut RecordReader) -> Result<Vec<u8>, GssError<E>> {
    let mut bytes = [0; 4096];
    loop {
        let n = stream.read(&mut bytes)?;
        if n == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(record) = reader.next(&mut &bytes[..n])? {
            return Ok(record.into_owned());
        }
    }
}

impl GssProtection {
    /// Protects calls in an established context.
    pub fn new(context: ClientContext) -> Self {
        Self { context, random: Box::new(Random { bytes: [0; 4096], used: 4096 }) }
    }

    /// The context, with its end and encryption type.
    pub const fn context(&self) -> &ClientContext {
        &self.context
    }

    /// The context for callbacks with this service.
    pub fn callback_security(&self, service: Service) -> Result<CallbackSecurity, ProtectionError> {
        let mut name = [0; HANDLE_LEN];
        getrandom::fill(&mut name).map_err(|_| ProtectionError::NoContext)?;
        let context = self.context.back_channel(ContextHandle(name));
        Ok(CallbackSecurity { context, service, from_server: self.context.handle().to_vec() })
    }

    /// The record that destroys the context at the server.
    pub fn destroy(&mut self, xid: u32) -> Result<Vec<u8>, ProtectionError> {
        let mut w = Writer::new();
        let start = begin_record(&mut w);
        let header_start = w.len();
        [xid, 0, vouch_oncrpc::RPC_VERSION, PROGRAM, VERSION, 0]
            .into_iter()
            .for_each(|word| w.u32(word));
        self.context.destroy(&mut w, header_start)?;
        end_record(w.bytes_mut(), start, 0);
        Ok(w.into_bytes())
    }
}

impl Random {
    fn fill(&mut self, out: &mut [u8]) -> bool {
        out.chunks_mut(self.bytes.len()).all(|out| {
            if self.bytes.len() - self.used < out.len() {
                if getrandom::fill(&mut self.bytes).is_err() {
                    return false;
                }
                self.used = 0;
            }
            let chunk = &mut self.bytes[self.used..][..out.len()];
            out.copy_from_slice(chunk);
            chunk.fill(0);
            self.used += out.len();
            true
        })
    }
}

impl Protection for GssProtection {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        Ok(CallTag(self.context.begin(w, header_start)?.0.into()))
    }

    fn enctype(&self) -> Option<&'static str> {
        Some(self.context.enctype().name())
    }

    fn end(&mut self, tag: CallTag, w: &mut Writer, body_start: usize) {
        self.context.lay_out(seq(tag), w, body_start);
    }

    fn protect(&mut self, calls: &mut [OutgoingCall<'_>]) -> Result<(), ProtectionError> {
        let Self { context, random } = self;
        let mut wraps: Vec<CallWrap<'_>> =
            calls.iter_mut().map(|call| CallWrap { bytes: call.bytes }).collect();
        match context.wrap_many(&mut wraps, &mut |bytes| random.fill(bytes)) {
            true => Ok(()),
            false => Err(ProtectionError::NoContext),
        }
    }

    fn protects(&self) -> bool {
        true
    }

    fn has_integrity(&self) -> bool {
        self.context.service() != Service::None
    }

    fn callback_security(&self) -> Option<CallbackSecurity> {
        Self::callback_security(self, self.context.service()).ok()
    }

    fn batch_len(&self) -> usize {
        match self.context.service() {
            Service::None => 0,
            Service::Integrity | Service::Privacy => long_wraps() * LONG_MESSAGE_LEN,
        }
    }

    fn outstanding_max(&self) -> usize {
        self.context.window() as usize
    }

    fn destroy_context(&mut self, xid: u32) -> Option<Vec<u8>> {
        self.destroy(xid).ok()
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        Ok(self.context.verify(seq(tag), verifier)?)
    }

    fn opener(&self) -> Option<Arc<dyn Opener>> {
        Some(Arc::new(self.context.reply_opener()))
    }

    fn open_many(&mut self, replies: &mut [IncomingReply<'_>]) {
        Opener::open_many(&self.context.reply_opener(), replies);
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.context.verify(seq(tag), verifier)?;
        Ok(self.context.open(seq(tag), body, scratch)?)
    }
}

impl Opener for ReplyOpener {
    fn open_many(&self, replies: &mut [IncomingReply<'_>]) {
        let mut opens: Vec<ReplyOpen<'_>> = Vec::with_capacity(replies.len());
        let mut results = Vec::with_capacity(replies.len());
        for IncomingReply { tag, record, verifier: (flavor, verifier), results: place } in replies {
            let Ok(Range { start, .. }) = *place else { continue };
            let verifier = (*flavor == Flavor::RPCSEC_GSS).then(|| verifier.clone());
            opens.push(ReplyOpen::new(record, seq(*tag), verifier, start));
            results.push(place);
        }
        ReplyOpener::open_many(self, &mut opens);
        for (place, open) in results.into_iter().zip(opens) {
            *place = open.results.map_err(ProtectionError::from);
        }
    }
}

impl From<OpenError> for ProtectionError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Verifier => Self::Verifier,
            OpenError::Body => Self::Body,
            OpenError::UsedUp => Self::NoContext,
        }
    }
}

fn seq(tag: CallTag) -> GssSeq {
    GssSeq(u32::try_from(tag.0).expect("tags are GSS sequence numbers"))
}

const LONG_MESSAGE_LEN: usize = 1 << 20;
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);
const REPLY_LEN_MAX: usize = 256 * 1024;
