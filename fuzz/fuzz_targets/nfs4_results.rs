//! Decoded values, as a client reads them, encode to one canonical form, which decodes to the same
//! value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_nfs4::flex_files::{Device, Layout};
use vouch_nfs4::op::Results;
use vouch_nfs4::{ReplyHead, Wire};
use vouch_xdr::{Reader, Writer};

fuzz_target!(|input: &[u8]| {
    let mut r = Reader::new(input);
    let Ok(head) = ReplyHead::decode(&mut r) else { return };
    for _ in 0..head.count.min(256) {
        let Ok(results) = Results::decode(&mut r) else { return };
        match &results {
            Results::Getattr(Ok(ok)) => drop(ok.attrs.attributes()),
            Results::Readdir(Ok(ok)) => {
                ok.entries.iter().for_each(|entry| drop(entry.attrs.attributes()))
            }
            Results::Layoutget(Ok(ok)) => {
                ok.layouts.0.iter().for_each(|layout| body::<Layout<'_>>(layout.content.body.0))
            }
            Results::Getdeviceinfo(Ok(ok)) => body::<Device<'_>>(ok.address.body.0),
            _ => {}
        }
        let (mut w, mut again) = (Writer::new(), Writer::new());
        results.encode(&mut w);
        Results::decode(&mut Reader::new(w.as_bytes()))
            .expect("an encoded value decodes")
            .encode(&mut again);
        assert_eq!(w.as_bytes(), again.as_bytes());
    }
});

/// XDR has one form for each value.
fn body<'a, T: Wire<'a>>(bytes: &'a [u8]) {
    if let Ok(body) = T::decode(&mut Reader::new(bytes)) {
        let mut w = Writer::new();
        body.encode(&mut w);
        assert!(bytes.starts_with(w.as_bytes()));
    }
}
