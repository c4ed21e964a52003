//! For security negotiation (RFC 8881 §2.6.3.1.1) and the machine credential.

use vouch_nfs4::op::{Args, Op, OpenClaim};
use vouch_xdr::Reader;

#[derive(Clone, Copy)]
pub(crate) struct Lookahead<'a> {
    pub(crate) minor: u32,
    pub(crate) body: &'a [u8],
    pub(crate) count: u32,
}

impl<'a> Lookahead<'a> {
    pub(crate) fn next(&self) -> Option<u32> {
        if self.count == 0 { None } else { Reader::new(self.body).u32().ok() }
    }

    /// True: the operation that sets the filehandle must not answer WRONGSEC.
    pub(crate) fn next_op_checks_flavor(&self) -> bool {
        // §2.6.3.1.1.2.
        match self.operations().find(|args| args.op() != Op::SAVEFH) {
            // §2.6.3.1.1.6.
            None => true,
            Some(Args::Open(open)) => match open.claim {
                // §2.6.3.1.1.3: an OPEN by name answers WRONGSEC itself.
                OpenClaim::Null(_) | OpenClaim::DelegateCur(_) | OpenClaim::DelegatePrev(_) => true,
                OpenClaim::Previous(_)
                | OpenClaim::Fh
                | OpenClaim::DelegCurFh(_)
                | OpenClaim::DelegPrevFh => false,
            },
            // §2.6.3.1.1.1 (another filehandle), 2.6.3.1.1.3, 2.6.3.1.1.4 (lookups) and
            // 2.6.3.1.1.5.
            Some(args) => matches!(
                args.op(),
                Op::PUTFH
                    | Op::PUTROOTFH
                    | Op::PUTPUBFH
                    | Op::RESTOREFH
                    | Op::LOOKUP
                    | Op::LOOKUPP
                    | Op::SECINFO
                    | Op::SECINFO_NO_NAME
            ),
        }
    }

    pub(crate) fn ops_on_same_filehandle(&self) -> impl Iterator<Item = Args<'a>> + use<'a> {
        let moves = |op| {
            matches!(
                op,
                Op::PUTFH
                    | Op::PUTROOTFH
                    | Op::PUTPUBFH
                    | Op::RESTOREFH
                    | Op::LOOKUP
                    | Op::LOOKUPP
                    | Op::OPEN
                    | Op::OPENATTR
                    | Op::CREATE
            )
        };
        self.operations().take_while(move |args| !moves(args.op()))
    }

    fn operations(&self) -> impl Iterator<Item = Args<'a>> + use<'a> {
        let (minor, mut r) = (self.minor, Reader::new(self.body));
        (0..self.count).map_while(move |_| Args::decode(minor, &mut r).ok())
    }
}
