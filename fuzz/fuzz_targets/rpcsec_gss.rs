//! Credentials and results of context creation encode to the same bytes, an unsigned call is never
//! accepted, and describing a token does not panic.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use vouch_krb5_seal::{ContextKeys, Enctype, Role};
use vouch_oncrpc::Call;
use vouch_rpcsec_gss::{
    CallClass, Check, ContextHandle, ContextLimits, Contexts, Credential, EstablishedContext,
    HANDLE_LEN, InitResult, Procedure, ServerContext, Verdict, check_many, classify,
    decode_init_args,
};
use vouch_xdr::{Writer, Xdr};

fn context() -> Arc<ServerContext> {
    static CONTEXT: OnceLock<Arc<ServerContext>> = OnceLock::new();
    let make = || {
        let keys = ContextKeys::new(Enctype::Aes256CtsHmacSha1_96, &[7; 32], Role::Acceptor, true)
            .expect("a key of 32 bytes");
        let established = EstablishedContext {
            keys: Arc::new(keys),
            principal: "a@B".into(),
            service: "nfs/c@B".into(),
            lifetime_s: 1 << 40,
            token_seq: 0,
        };
        Contexts::<()>::new(ContextLimits::default()).insert(
            ContextHandle([1; HANDLE_LEN]),
            established,
            0,
        )
    };
    CONTEXT.get_or_init(make).clone()
}

fuzz_target!(|input: &[u8]| {
    if let Ok(credential) = Credential::decode(input) {
        let mut w = Writer::new();
        credential.encode(&mut w);
        // Fields without a meaning during context creation are not kept.
        match credential.procedure {
            Procedure::Data | Procedure::Destroy => assert_eq!(w.as_bytes(), input),
            Procedure::Init | Procedure::ContinueInit => {
                assert_eq!(Credential::decode(w.as_bytes()), Ok(credential))
            }
        }
        assert_eq!(credential.len(), input.len());
    }
    if let Ok(result) = InitResult::from_xdr(input) {
        assert_eq!(result.to_xdr(), input);
    }
    let _ = decode_init_args(input);
    let _ = vouch_gss_mit::describe_token(input);
    let mut record = input.to_vec();
    if let Ok(call) = Call::decode(input)
        && let CallClass::Call(call) = classify(input, &call, |_| Some(context()))
    {
        let mut checks = [Check::new(&mut record, &call)];
        check_many(&mut checks, 0);
        assert!(!matches!(checks[0].verdict, Verdict::Genuine(_)));
    }
});
