use std::sync::Arc;
use std::time::{Duration, Instant};

use vouch_krb5_seal::{ContextKeys, Enctype, Role};
use vouch_nfs4::Status;
use vouch_nfs4_client::{
    CallTag, CallbackSecurity, Client, Config, GssProtection, Plain, Protection, ProtectionError,
};
use vouch_oncrpc::{Call, OpaqueAuth};
use vouch_rpcsec_gss::{
    Accept, CallClass, ContextHandle, ContextLimits, Contexts, EstablishedClient,
    EstablishedContext, HANDLE_LEN, InitStep, Initiated, Initiation, Initiator, Service, classify,
};
use vouch_xdr::Writer;

use crate::server::Shared;
use crate::{identity, root, server};

pub(crate) struct CallbackOnly {
    calls: Plain,
    context: GssProtection,
}

impl CallbackOnly {
    pub(crate) fn new(name: u8) -> Self {
        CallbackOnly { calls: Plain::none(), context: context(name) }
    }
}

impl Protection for CallbackOnly {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.calls.begin(w, header_start)
    }

    fn callback_security(&self) -> Option<CallbackSecurity> {
        Protection::callback_security(&self.context)
    }

    fn destroy_context(&mut self, xid: u32) -> Option<Vec<u8>> {
        self.context.destroy_context(xid)
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.calls.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.calls.open(tag, verifier, body, scratch)
    }
}

fn keys(role: Role) -> Arc<ContextKeys> {
    Arc::new(
        ContextKeys::new(Enctype::ALL[0], &vec![7; Enctype::ALL[0].key_len()], role, true)
            .expect("a key of the right length"),
    )
}

struct OneTokenMechanism;

impl Initiator for OneTokenMechanism {
    type Error = std::io::Error;

    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, std::io::Error> {
        Ok(match token {
            None => InitStep::Continue { token: b"hello".to_vec() },
            Some(_) => {
                let context = EstablishedClient {
                    keys: keys(Role::Initiator),
                    lifetime_s: 3600,
                    token_seq: 1 << 41,
                };
                InitStep::Established { context, token: None }
            }
        })
    }
}

fn context(name: u8) -> GssProtection {
    let initiation = Initiation::begin(OneTokenMechanism, Service::Integrity).unwrap();
    let mut w = Writer::new();
    initiation.call(1, 100_003, 4, &mut w);
    let record = w.into_bytes();
    let CallClass::Init(init) = classify(&record, &Call::decode(&record).unwrap(), |_| None) else {
        panic!("expected a context request")
    };
    let (principal, service) = ("alice@TEST".into(), "nfs/host@TEST".into());
    let context = EstablishedContext {
        keys: keys(Role::Acceptor),
        principal,
        service,
        lifetime_s: 3600,
        token_seq: 1 << 40,
    };
    let mut contexts = Contexts::<()>::new(ContextLimits::default());
    let accepted = contexts.store(
        Accept::Established { context, token: b"welcome".to_vec() },
        ContextHandle([name; HANDLE_LEN]),
        0,
    );
    let mut w = Writer::new();
    init.reply(accepted, &mut w);
    let Ok(Initiated::Done(context)) = initiation.reply(1, w.as_bytes()) else {
        panic!("expected a complete context")
    };
    GssProtection::new(context)
}

pub(crate) async fn start_with_renewal(offer_statuses: Vec<Status>) -> (Client, Shared) {
    let (address, server_state) = server::start().await;
    let mut config = Config::new(address, 1, identity(), CallbackOnly::new(1));
    config.renewal = Some(Arc::new(|| Ok(Box::new(CallbackOnly::new(2)))));
    let client = Client::connect(config).await.unwrap();
    assert!(client.are_callbacks_authenticated());
    root(&client).await;
    let mut server = server_state.lock().unwrap();
    assert_eq!(server.offered_handles.len(), 0, "CREATE_SESSION has offered the context");
    (server.denials, server.offer_statuses) = (1, offer_statuses);
    drop(server);
    (client, server_state)
}

#[tokio::test]
async fn repeats_offer_of_callback_context_after_failure() {
    let (client, server_state) = start_with_renewal(vec![Status::DELAY; 2]).await;
    let began = Instant::now();
    while server_state.lock().unwrap().offered_handles.len() < 3 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the client repeats the offer with a later reply"
        );
        root(&client).await;
        let offers = server_state.lock().unwrap().offered_handles.len() as u64;
        assert!(
            offers <= 2 + began.elapsed().as_secs(),
            "the client does not offer the context with each reply"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        root(&client).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server_state.lock().unwrap().offered_handles, vec![[2; 16]; 3]);
    assert!(client.are_callbacks_authenticated());
}

#[tokio::test]
async fn offers_callback_context_once_to_server_without_support() {
    let (client, server_state) = start_with_renewal(vec![Status::NOTSUPP]).await;
    let began = Instant::now();
    while server_state.lock().unwrap().offered_handles.is_empty()
        || began.elapsed() < Duration::from_millis(1500)
    {
        assert!(began.elapsed() < Duration::from_secs(60), "the client offers the context");
        root(&client).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server_state.lock().unwrap().offered_handles, [[2; 16]]);
}
