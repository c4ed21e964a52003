//! A client and a server in one process, with privacy. The mechanism is a fake one with a fixed
//! key; use Kerberos in real programs.
//!
//! `cargo run --example echo -- TEXT`

use std::error::Error;
use std::sync::Arc;

use vouch_krb5_seal::{ContextKeys, Enctype, Role};
use vouch_oncrpc::{Accepted, Call, Reply, ReplyBody};
use vouch_rpcsec_gss::{
    Accept, Acceptor, CallClass, Check, ClientContext, ContextHandle, ContextLimits, Contexts,
    Envelope, EstablishedClient, EstablishedContext, HANDLE_LEN, InitStep, Initiated, Initiation,
    Initiator, Service, Verdict, Wrap, check_many, classify, wrap_many,
};
use vouch_xdr::Writer;

const PROGRAM: u32 = 0x2000_0001;

struct FixedKey;

fn keys(role: Role) -> Arc<ContextKeys> {
    Arc::new(
        ContextKeys::new(Enctype::Aes256CtsHmacSha1_96, &[7; 32], role, false).expect("32 bytes"),
    )
}

impl Initiator for FixedKey {
    type Error = std::io::Error;

    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, std::io::Error> {
        Ok(match token {
            None => InitStep::Continue { token: b"hello".to_vec() },
            Some(_) => InitStep::Established {
                context: EstablishedClient {
                    keys: keys(Role::Initiator),
                    lifetime_s: 3600,
                    token_seq: 0,
                },
                token: None,
            },
        })
    }
}

impl Acceptor for FixedKey {
    type Partial = ();

    fn accept(&self, _: Option<()>, _: &[u8]) -> Accept<()> {
        let context = EstablishedContext {
            keys: keys(Role::Acceptor),
            principal: "alice@EXAMPLE.ORG".into(),
            service: "echo/host.example.org@EXAMPLE.ORG".into(),
            lifetime_s: 3600,
            token_seq: 0,
        };
        Accept::Established { context, token: b"welcome".to_vec() }
    }
}

fn serve(contexts: &mut Contexts<()>, mut record: Vec<u8>) -> Result<Vec<u8>, Box<dyn Error>> {
    let call = Call::decode(&record)?;
    match classify(&record, &call, |handle| contexts.find(handle, 0)) {
        CallClass::Init(init) => {
            let partial = init.partial(contexts, 0).map_err(|stat| format!("refused: {stat:?}"))?;
            let outcome = contexts.store(
                FixedKey.accept(partial, &init.token),
                ContextHandle([1; HANDLE_LEN]),
                0,
            );
            let mut reply = Writer::new();
            init.reply(outcome, &mut reply);
            Ok(reply.into_bytes())
        }
        CallClass::Call(call) => {
            let mut checks = [Check::new(&mut record, &call)];
            check_many(&mut checks, 0);
            let [check] = checks;
            let Verdict::Genuine(args) = check.verdict else { return Err("not genuine".into()) };
            println!(
                "server: {} calls: {:?}",
                call.context().principal(),
                String::from_utf8_lossy(&record[args.clone()])
            );
            let mut reply = Writer::new();
            let envelope = Envelope::begin(&call, Accepted::Success(&[]), &mut reply);
            reply.raw(&record[args]);
            let mut bytes = reply.into_bytes();
            let mut wraps = [Wrap::new(&mut bytes, &envelope)];
            wrap_many(&mut wraps, &mut |confounders| {
                confounders.fill(3);
                true
            });
            let [wrap] = wraps;
            if wrap.done { Ok(bytes) } else { Err("the reply cannot be protected".into()) }
        }
        CallClass::Garbage | CallClass::Refused(_) => Err("refused".into()),
    }
}

fn connect(contexts: &mut Contexts<()>) -> Result<ClientContext, Box<dyn Error>> {
    let creation = Initiation::begin(FixedKey, Service::Privacy)?;
    let mut call = Writer::new();
    creation.call(1, PROGRAM, 1, &mut call);
    match creation.reply(1, &serve(contexts, call.into_bytes())?)? {
        Initiated::Done(context) => Ok(context),
        Initiated::Again(_) => Err("the exchange goes on".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Arguments are XDR: a multiple of four bytes.
    let mut text =
        std::env::args().nth(1).unwrap_or_else(|| "hello, world".to_owned()).into_bytes();
    text.resize(text.len().next_multiple_of(4), 0);
    let mut contexts = Contexts::new(ContextLimits::default());
    let mut client = connect(&mut contexts)?;

    let mut call = Writer::new();
    for word in [2, 0, 2, PROGRAM, 1, 1] {
        call.u32(word); // xid 2, CALL, RPC version 2, program, version 1, procedure 1
    }
    let seq = client.begin(&mut call, 0)?;
    let body_start = call.len();
    call.raw(&text);
    client.end(seq, &mut call, 0, body_start, [9; 16])?;
    let call = call.into_bytes();
    println!(
        "on the wire: {}",
        if call.windows(text.len()).any(|part| part == text) { "in clear" } else { "encrypted" }
    );

    let reply = serve(&mut contexts, call)?;
    let ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } =
        Reply::decode(&reply)?.body
    else {
        return Err("denied".into());
    };
    client.verify(seq, verf)?;
    let mut scratch = Vec::new();
    println!("client: reply: {:?}", String::from_utf8_lossy(client.open(seq, body, &mut scratch)?));
    Ok(())
}
