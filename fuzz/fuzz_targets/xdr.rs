//! Reads that the input selects; read values encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_xdr::{Reader, Writer};

fuzz_target!(|input: &[u8]| {
    let Some((&script_len, rest)) = input.split_first() else { return };
    let Some((script, data)) = rest.split_at_checked(script_len.into()) else { return };
    let mut r = Reader::new(data);
    let mut w = Writer::new();
    for step in script {
        let limit = usize::from(step >> 3) * 16;
        let done = match step & 7 {
            0 => r.u32().map(|v| w.u32(v)),
            1 => r.i32().map(|v| w.i32(v)),
            2 => r.u64().map(|v| w.u64(v)),
            3 => r.i64().map(|v| w.i64(v)),
            4 => r.bool().map(|v| w.bool(v)),
            5 => r.opaque_fixed::<7>().map(|v| w.opaque_fixed(&v)),
            6 => r.opaque(limit).map(|v| w.opaque(v)),
            _ => r.string(limit).map(|v| w.opaque(v.as_bytes())),
        };
        if done.is_err() {
            return;
        }
    }
    assert_eq!(w.as_bytes(), &data[..data.len() - r.remaining()]);
});
