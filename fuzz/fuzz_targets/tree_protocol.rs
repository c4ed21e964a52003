//! Fuzzes messages of the replica protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::protocol::{
    GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, PutStatementArgs,
    PutStatementResult,
};
use vouch_xdr::{Writer, Xdr};

fuzz_target!(|input: &[u8]| {
    round_trip::<GetFsinfoArgs>(input);
    round_trip::<GetFsinfoResult>(input);
    round_trip::<GetDataArgs>(input);
    round_trip::<PutStatementArgs>(input);
    round_trip::<PutStatementResult>(input);
    if let Ok(result) = GetDataResult::from_xdr(input) {
        let mut w = Writer::new();
        result.encode(&mut w);
        assert_eq!(w.as_bytes(), input);
    }
});

/// A decoded message encodes to the same bytes.
fn round_trip<T: Xdr>(input: &[u8]) {
    if let Ok(value) = T::from_xdr(input) {
        assert_eq!(value.to_xdr(), input);
    }
}
