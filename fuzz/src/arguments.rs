//! Decoded arguments encode to one canonical form, which decodes to the same value.

use vouch_nfs4::op::{Args, CreateHow, OpenHow};
use vouch_nfs4::{Attributes, CompoundHead, Fattr, Name};
use vouch_xdr::{Reader, Writer};

pub fn check(input: &[u8], minor: impl Fn(u32) -> u32) {
    let mut r = Reader::new(input);
    let Ok(head) = CompoundHead::decode(&mut r) else { return };
    let minor = minor(head.minor);
    for _ in 0..head.count.min(256) {
        let Ok(args) = Args::decode(minor, &mut r) else { return };
        if let Args::Illegal(_) = args {
            return;
        }
        judge(&args);
        let mut w = Writer::new();
        args.encode(&mut w);
        let mut again = Writer::new();
        Args::decode(minor, &mut Reader::new(w.as_bytes()))
            .expect("an encoded value decodes")
            .encode(&mut again);
        assert_eq!(w.as_bytes(), again.as_bytes());
    }
}

fn judge(args: &Args<'_>) {
    let attrs = |fattr: &Fattr<'_>| {
        let _ = fattr.settings(Attributes::KNOWN);
        let _ = fattr.comparison(Attributes::KNOWN);
    };
    let name = |name: Name<'_>| {
        if let Ok(component) = name.component() {
            assert!(!component.as_bytes().contains(&b'/'));
        }
    };
    match args {
        Args::Lookup(args) => name(args.name),
        Args::Setattr(args) => attrs(&args.attrs),
        Args::Verify(args) | Args::Nverify(args) => attrs(&args.attrs),
        Args::Create(args) => {
            name(args.name);
            attrs(&args.attrs);
        }
        Args::Open(args) => match args.how {
            OpenHow::Create(CreateHow::Unchecked(fattr) | CreateHow::Guarded(fattr)) => {
                attrs(&fattr)
            }
            OpenHow::Create(CreateHow::Exclusive41(both)) => attrs(&both.attrs),
            _ => {}
        },
        _ => {}
    }
}
