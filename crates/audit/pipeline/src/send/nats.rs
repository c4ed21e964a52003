//! JetStream acknowledges stored records, and others are sent again. A stream removes duplicates by
//! message id.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{ConnectErrorKind, ConnectOptions};
use tokio::runtime::Runtime;
use vouch_audit::frame::{Header, MAGIC};
use vouch_audit::trail::{Segment, segments};

use super::Message;
use super::delivery_error::DeliveryError;
use super::target::{Protocol, Target};
use super::tls::{TlsOptions, delivery_error};
use vouch_daemon::failure::{At as _, Failure, Outcome, chain};

#[derive(Debug, Default)]
pub struct NatsOptions {
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
}

impl NatsOptions {
    pub(super) fn any(&self) -> bool {
        self.password_file.is_some()
    }

    pub(super) fn options(&self) -> Outcome<ConnectOptions> {
        let options = ConnectOptions::new().name("vouch audit send").connection_timeout(CONNECT);
        let Some(path) = &self.password_file else { return Ok(options) };
        vouch_trust::warn_if_exposed(path);
        let secret = std::fs::read_to_string(path).at(path.display())?.trim_end().to_owned();
        Ok(match &self.user {
            Some(user) => options.user_and_password(user.clone(), secret),
            None => options.token(secret),
        })
    }
}

pub(super) struct Nats {
    runtime: Runtime,
    context: Context,
    subject: String,
    /// Prefix of message ids, which separates trails in one stream.
    trail: String,
}

impl Nats {
    pub(super) fn open(
        target: &Target,
        args: &NatsOptions,
        tls: &TlsOptions,
        directory: &Path,
    ) -> Result<Nats, DeliveryError> {
        let trail = trail_of(directory).map_err(DeliveryError::new)?;
        let mut options = args.options().map_err(DeliveryError::new)?;
        if target.protocol == Protocol::NatsTls {
            options = tls.nats(options).map_err(DeliveryError::new)?;
        }
        // Own threads, because the server needs answers even while nothing is sent.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connected = runtime.block_on(options.clone().connect(target.authority()));
        let client = match connected {
            // A server with `handshake_first` sends nothing before the TLS handshake.
            Err(error) if target.protocol == Protocol::NatsTls && is_silent(&error) => runtime
                .block_on(options.tls_first().connect(target.authority()))
                .map_err(|error| of_connect(&error))?,
            connected => connected.map_err(|error| of_connect(&error))?,
        };
        let context = runtime.block_on(async {
            ContextBuilder::new().timeout(ACKNOWLEDGE).max_ack_inflight(2 * IN_FLIGHT).build(client)
        });
        Ok(Nats { runtime, context, subject: target.subject.clone(), trail })
    }

    pub(super) fn send(&self, messages: &[Message]) -> Result<(), DeliveryError> {
        self.runtime.block_on(async {
            for some in messages.chunks(IN_FLIGHT) {
                let mut acknowledged = Vec::with_capacity(some.len());
                for message in some {
                    let id = format!("{}-{}", self.trail, message.seq);
                    let publish =
                        PublishMessage::build().payload(message.text.clone().into()).message_id(id);
                    acknowledged.push(
                        self.context
                            .send_publish(self.subject.clone(), publish)
                            .await
                            .map_err(|error| of_publish(&error))?,
                    );
                }
                for one in acknowledged {
                    one.await.map_err(|error| of_publish(&error))?;
                }
            }
            Ok(())
        })
    }
}

pub(super) fn trail_of(directory: &Path) -> Outcome<String> {
    let files = segments(directory).at(directory.display())?;
    let Some(file) = files.first() else {
        return Err(Failure::input(directory.display(), "contains no segment of a trail"));
    };
    let header = Segment::open(file)
        .and_then(|segment| segment.frame_at(MAGIC.len() as u64))
        .at(file.path.display())?;
    let header = Header::decode(&header.1)
        .ok_or_else(|| Failure::input(file.path.display(), "is not a valid segment"))?;
    Ok(data_encoding::HEXLOWER.encode(&header.trail))
}

fn is_silent(error: &async_nats::ConnectError) -> bool {
    error.kind() == ConnectErrorKind::TimedOut
}

fn of_connect(error: &async_nats::ConnectError) -> DeliveryError {
    // The cause of a TLS error is deep in its chain.
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(source) = next {
        if let Some(source) = source
            .downcast_ref::<std::io::Error>()
            .filter(|source| source.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()))
        {
            return delivery_error(source);
        }
        next = source.source();
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            DeliveryError::refusal(
                "the NATS server refuses the login",
                "give --nats-user and --nats-password-file, or --tls-cert and --tls-key, of a user known to the server",
            )
        }
        _ => DeliveryError::new(chain(error)),
    }
}

fn of_publish(error: &async_nats::jetstream::context::PublishError) -> DeliveryError {
    match error.kind() {
        PublishErrorKind::StreamNotFound => DeliveryError::refusal(
            "no JetStream stream has this subject, so nothing would be stored",
            "create one: nats stream add --subjects SUBJECT",
        ),
        PublishErrorKind::MaxPayloadExceeded => {
            DeliveryError::refusal(chain(error), "raise max_payload of the NATS server")
        }
        _ => DeliveryError::new(chain(error)),
    }
}

const IN_FLIGHT: usize = 256;
const CONNECT: Duration = Duration::from_secs(10);
/// Time-out of an acknowledgement; afterwards all is sent again.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
