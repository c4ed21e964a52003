//! Decoded values encode to one canonical form, which decodes to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_nfs4::CallbackHead;
use vouch_nfs4::cb::{Args, Results};
use vouch_xdr::{Reader, Writer};

fuzz_target!(|input: &[u8]| {
    let mut r = Reader::new(input);
    if let Ok(results) = Results::decode(&mut r.clone()) {
        let (mut w, mut again) = (Writer::new(), Writer::new());
        results.encode(&mut w);
        Results::decode(&mut Reader::new(w.as_bytes()))
            .expect("an encoded value decodes")
            .encode(&mut again);
        assert_eq!(w.as_bytes(), again.as_bytes());
    }
    let Ok(head) = CallbackHead::decode(&mut r) else { return };
    let minor = head.minor % 3;
    for _ in 0..head.count.min(256) {
        let Ok(args) = Args::decode(minor, &mut r) else { return };
        if let Args::Illegal(_) = args {
            return;
        }
        let (mut w, mut again) = (Writer::new(), Writer::new());
        args.encode(&mut w);
        Args::decode(minor, &mut Reader::new(w.as_bytes()))
            .expect("an encoded value decodes")
            .encode(&mut again);
        assert_eq!(w.as_bytes(), again.as_bytes());
    }
});
