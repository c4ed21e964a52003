use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vouch_nfs4_client::{CallTag, Client, Config, Error, Plain, Protection, ProtectionError};
use vouch_oncrpc::OpaqueAuth;
use vouch_xdr::Writer;

use crate::{identity, root, server};

struct LimitedProtection {
    calls: Plain,
    name: u64,
    left: u64,
}

impl LimitedProtection {
    fn new(name: u64, left: u64) -> Self {
        LimitedProtection { calls: Plain::none(), name, left }
    }

    fn check_tag(&self, tag: CallTag) -> Result<(), ProtectionError> {
        if tag.0 == self.name { Ok(()) } else { Err(ProtectionError::Verifier) }
    }
}

impl Protection for LimitedProtection {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.left = self.left.checked_sub(1).ok_or(ProtectionError::NoContext)?;
        self.calls.begin(w, header_start)?;
        Ok(CallTag(self.name))
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.check_tag(tag)?;
        self.calls.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.check_tag(tag)?;
        self.calls.open(tag, verifier, body, scratch)
    }
}

// Sequence numbers are below MAXSEQ (RFC 2203 §5.3.3.1).
#[tokio::test]
async fn replaces_exhausted_context_without_failing_calls() {
    for (minor, connections) in [(0, 1), (1, 1), (2, 3)] {
        let (address, _world) = server::start().await;
        let contexts_created = Arc::new(AtomicU64::new(0));
        let mut config = Config::new(address, minor, identity(), LimitedProtection::new(0, 20));
        config.connections = connections;
        let count = contexts_created.clone();
        config.renewal = Some(Arc::new(move || {
            Ok(Box::new(LimitedProtection::new(count.fetch_add(1, Ordering::SeqCst) + 1, 20)))
        }));
        let client = Client::connect(config).await.unwrap();
        for _ in 0..5 {
            let calls: Vec<_> = (0..16)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move { root(&client).await })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        }
        let contexts_created = contexts_created.load(Ordering::SeqCst);
        assert!(
            (3..=8).contains(&contexts_created),
            "4.{minor}: 80 calls and the handshake need 4 more contexts, not {contexts_created}"
        );
    }
}

#[tokio::test]
async fn caller_sees_error_when_no_context_can_be_created() {
    let (address, _world) = server::start().await;
    let client = Client::connect(Config::new(address, 1, identity(), LimitedProtection::new(0, 5)))
        .await
        .unwrap();
    let error = loop {
        if let Err(error) = client.walk(b"/").await {
            break error;
        }
    };
    assert!(matches!(error, Error::Protection(ProtectionError::NoContext)), "{error:?}");
    let (address, _world) = server::start().await;
    let mut config = Config::new(address, 1, identity(), LimitedProtection::new(0, 5));
    config.renewal = Some(Arc::new(|| Err("no ticket".into())));
    let client = Client::connect(config).await.unwrap();
    let error = loop {
        if let Err(error) = client.walk(b"/").await {
            break error;
        }
    };
    assert!(matches!(error, Error::Denied(_)), "{error:?}");
}
