//! Decoded messages, with arguments or results in XDR, encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_oncrpc::{AuthSys, Call, Reply};
use vouch_xdr::{Writer, Xdr};

fuzz_target!(|input: &[u8]| {
    let whole_words = input.len() % 4 == 0;
    match Call::decode(input) {
        Ok(call) => {
            let _ = AuthSys::from_xdr(call.cred.body);
            if whole_words {
                let mut w = Writer::new();
                call.encode(&mut w);
                assert_eq!(w.as_bytes(), input);
            }
        }
        Err(error) => {
            if let Some(reply) = error.reply() {
                reply.encode(&mut Writer::new());
            }
        }
    }
    if let Ok(reply) = Reply::decode(input)
        && whole_words
    {
        let mut w = Writer::new();
        reply.encode(&mut w);
        assert!(input.starts_with(w.as_bytes()));
    }
});
