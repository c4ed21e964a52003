//! Contexts whose numbers are used up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vouch_nfs4_client::{CallTag, Client, Config, Error, Plain, Protection, ProtectionError};
use vouch_oncrpc::OpaqueAuth;
use vouch_xdr::Writer;

use crate::{identity, root, server};

/// Protects so many calls, and opens the replies to these alone.
struct Short {
    calls: Plain,
    name: u64,
    left: u64,
}

impl Short {
    fn new(name: u64, left: u64) -> Self {
        Short { calls: Plain::none(), name, left }
    }

    fn is_own(&self, tag: CallTag) -> Result<(), ProtectionError> {
        if tag.0 == self.name { Ok(()) } else { Err(ProtectionError::Verifier) }
    }
}

impl Protection for Short {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.left = self.left.checked_sub(1).ok_or(ProtectionError::NoContext)?;
        self.calls.begin(w, header_start)?;
        Ok(CallTag(self.name))
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.is_own(tag)?;
        self.calls.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.is_own(tag)?;
        self.calls.open(tag, verifier, body, scratch)
    }
}

// RFC 2203, section 5.3.3.1: no call has a number of MAXSEQ or more.
#[tokio::test]
async fn a_context_whose_numbers_are_used_up_is_replaced_and_no_caller_notices() {
    for (minor, connections) in [(0, 1), (1, 1), (2, 3)] {
        let (address, _world) = server::start().await;
        let made = Arc::new(AtomicU64::new(0));
        let mut config = Config::new(address, minor, identity(), Short::new(0, 20));
        config.connections = connections;
        let count = made.clone();
        config.renewal = Some(Arc::new(move || Ok(Box::new(Short::new(count.fetch_add(1, Ordering::SeqCst) + 1, 20)))));
        let client = Client::connect(config).await.unwrap();
        // Some are out when it ends, and are answered under it.
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
        let made = made.load(Ordering::SeqCst);
        assert!((3..=8).contains(&made), "4.{minor}: 80 calls and those that made the session take 4 more contexts, not {made}");
    }
}

#[tokio::test]
async fn where_no_context_can_be_made_the_caller_is_told() {
    let (address, _world) = server::start().await;
    let client = Client::connect(Config::new(address, 1, identity(), Short::new(0, 5))).await.unwrap();
    let failure = loop {
        if let Err(error) = client.walk(b"/").await {
            break error;
        }
    };
    assert!(matches!(failure, Error::Protection(ProtectionError::NoContext)), "{failure:?}");
    let (address, _world) = server::start().await;
    let mut config = Config::new(address, 1, identity(), Short::new(0, 5));
    config.renewal = Some(Arc::new(|| Err("no ticket".into())));
    let client = Client::connect(config).await.unwrap();
    let failure = loop {
        if let Err(error) = client.walk(b"/").await {
            break error;
        }
    };
    assert!(matches!(failure, Error::Denied(_)), "{failure:?}");
}
