use proptest::prelude::*;
use vouch_nfs4::op::{ShareDeny, StableHow};

use crate::prelude::*;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

#[derive(Clone, Debug)]
enum Operation {
    Export,
    Lookup(usize),
    Parent,
    Save,
    Restore,
    Attributes(Vec<u32>),
    Access,
    MakeDirectory(usize),
    MakeLink(usize),
    ReadLink,
    Open { name: usize, access: u32, how: u8, size: Option<u64> },
    CloseCurrent,
    Write { at: u64, len: usize, stable: StableHow },
    Read { at: u64 },
    ReadPlus { at: u64 },
    Commit,
    SetMode(u32),
    SetSize(u64),
    Remove(usize),
    Rename(usize, usize),
    Link(usize),
    List,
    SetXattr(usize),
    GetXattr(usize),
    ListXattrs,
    Allocate,
    Copy,
}

fn operation() -> impl Strategy<Value = Operation> {
    let n = 0..NAMES.len();
    prop_oneof![
        4 => Just(Operation::Export),
        4 => n.clone().prop_map(Operation::Lookup),
        1 => Just(Operation::Parent),
        2 => Just(Operation::Save),
        1 => Just(Operation::Restore),
        3 => prop::sample::subsequence(vec![1u32, 3, 4, 12, 20, 33, 35, 36, 42, 45, 47, 53], 1..6).prop_map(Operation::Attributes),
        1 => Just(Operation::Access),
        2 => n.clone().prop_map(Operation::MakeDirectory),
        1 => n.clone().prop_map(Operation::MakeLink),
        1 => Just(Operation::ReadLink),
        5 => (n.clone(), 1u32..4, 0u8..5, prop::option::of(0u64..3))
            .prop_map(|(name, access, how, size)| Operation::Open { name, access, how, size: size.map(|size| size * 700) }),
        1 => Just(Operation::CloseCurrent),
        3 => (0u64..5000, 0usize..600, prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)])
            .prop_map(|(at, len, stable)| Operation::Write { at, len, stable }),
        2 => (0u64..5000).prop_map(|at| Operation::Read { at }),
        1 => (0u64..5000).prop_map(|at| Operation::ReadPlus { at }),
        1 => Just(Operation::Commit),
        1 => (0u32..0o1000).prop_map(Operation::SetMode),
        1 => (0u64..9000).prop_map(Operation::SetSize),
        2 => n.clone().prop_map(Operation::Remove),
        2 => (n.clone(), n.clone()).prop_map(|(from, to)| Operation::Rename(from, to)),
        1 => n.clone().prop_map(Operation::Link),
        1 => Just(Operation::List),
        1 => n.clone().prop_map(Operation::SetXattr),
        1 => n.prop_map(Operation::GetXattr),
        1 => Just(Operation::ListXattrs),
        1 => Just(Operation::Allocate),
        1 => Just(Operation::Copy),
    ]
}

fn encode_call(client: &mut Client<'_>, operations: &[Operation], cached: bool) -> Vec<u8> {
    let attrs: Vec<Packed> = operations.iter().map(attributes_of).collect();
    let data = [7u8; 600];
    let name = |at: usize| Name(NAMES[at]);
    let mut ops = vec![client.next_sequence(cached)];
    for (operation, attrs) in operations.iter().zip(&attrs) {
        match operation {
            Operation::Export => ops.extend([Args::Putrootfh, lookup("export")]),
            Operation::Lookup(at) => ops.push(Args::Lookup(op::LookupArgs { name: name(*at) })),
            Operation::Parent => ops.push(Args::Lookupp),
            Operation::Save => ops.push(Args::Savefh),
            Operation::Restore => ops.push(Args::Restorefh),
            Operation::Attributes(wanted) => ops.push(getattr(wanted)),
            Operation::Access => {
                ops.push(Args::Access(op::AccessArgs { access: op::Access(0x3f) }))
            }
            Operation::MakeDirectory(at) => {
                let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
                ops.push(Args::Create(op::CreateArgs {
                    kind,
                    name: name(*at),
                    attrs: attrs.fattr(),
                }));
            }
            Operation::MakeLink(at) => {
                let kind = op::CreateType::Symlink(b"target");
                ops.push(Args::Create(op::CreateArgs {
                    kind,
                    name: name(*at),
                    attrs: attrs.fattr(),
                }));
            }
            Operation::ReadLink => ops.push(Args::Readlink),
            Operation::Open { name: at, access, how, .. } => ops.push(Args::Open(op::OpenArgs {
                seq: OwnerSeq(0),
                access: ShareAccess(*access) | ShareAccess::WANT_NO_DELEG,
                deny: ShareDeny(0),
                owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
                how: match how {
                    0 => OpenHow::NoCreate,
                    1 => OpenHow::Create(CreateHow::Unchecked(attrs.fattr())),
                    2 => OpenHow::Create(CreateHow::Guarded(attrs.fattr())),
                    3 => OpenHow::Create(CreateHow::Exclusive(Verifier([9; 8]))),
                    _ => OpenHow::Create(CreateHow::Exclusive41(op::CreateVerifierAttrs {
                        verifier: Verifier([8; 8]),
                        attrs: attrs.fattr(),
                    })),
                },
                claim: OpenClaim::Null(name(*at)),
            })),
            Operation::CloseCurrent => {
                ops.push(Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: Stateid::CURRENT }))
            }
            Operation::Write { at, len, stable } => {
                let data = Bytes(&data[..*len]);
                ops.push(Args::Write(op::WriteArgs {
                    stateid: Stateid::ANONYMOUS,
                    offset: *at,
                    stable: *stable,
                    data,
                }));
            }
            Operation::Read { at } => ops.push(Args::Read(op::ReadArgs {
                stateid: Stateid::ANONYMOUS,
                offset: *at,
                count: 900,
            })),
            Operation::ReadPlus { at } => ops.push(Args::ReadPlus(op::ReadPlusArgs {
                stateid: Stateid::ANONYMOUS,
                offset: *at,
                count: 900,
            })),
            Operation::Commit => ops.push(Args::Commit(op::CommitArgs { offset: 0, count: 0 })),
            Operation::SetMode(_) | Operation::SetSize(_) => {
                ops.push(Args::Setattr(op::SetattrArgs {
                    stateid: Stateid::ANONYMOUS,
                    attrs: attrs.fattr(),
                }));
            }
            Operation::Remove(at) => ops.push(Args::Remove(op::RemoveArgs { name: name(*at) })),
            Operation::Rename(from, to) => {
                ops.push(Args::Rename(op::RenameArgs { old: name(*from), new: name(*to) }))
            }
            Operation::Link(at) => ops.push(Args::Link(op::LinkArgs { name: name(*at) })),
            Operation::List => ops.push(Args::Readdir(op::ReaddirArgs {
                cookie: Cookie(0),
                verifier: Verifier([0; 8]),
                dir_count: 4096,
                max_count: 4096,
                wanted: vouch_nfs4::Bitmap::of(&[1, 4, 20, 33]),
            })),
            Operation::SetXattr(at) => {
                let (name, value) = (name(*at), Bytes(&data[..9]));
                ops.push(Args::Setxattr(op::SetxattrArgs {
                    option: op::SetxattrOption::Either,
                    name,
                    value,
                }));
            }
            Operation::GetXattr(at) => {
                ops.push(Args::Getxattr(op::GetxattrArgs { name: name(*at) }))
            }
            Operation::ListXattrs => ops
                .push(Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(0), max_count: 1000 })),
            Operation::Allocate => ops.push(Args::Allocate(op::AllocateArgs {
                stateid: Stateid::ANONYMOUS,
                offset: 100,
                length: 900,
            })),
            Operation::Copy => ops.push(Args::Copy(op::CopyArgs {
                source: Stateid::ANONYMOUS,
                destination: Stateid::ANONYMOUS,
                source_offset: 0,
                destination_offset: 3000,
                count: 100,
                consecutive: true,
                synchronous: true,
                source_server: vouch_nfs4::List(vec![]),
            })),
        }
    }
    compound(client.minor, &ops)
}

fn attributes_of(operation: &Operation) -> Packed {
    use vouch_nfs4::Attributes;
    match operation {
        Operation::Open { size: Some(size), .. } | Operation::SetSize(size) => {
            Packed::one(4, Attributes { size: Some(*size), ..Attributes::default() })
        }
        Operation::SetMode(bits) => mode(*bits),
        _ => mode(0o755),
    }
}

fn replies_to(calls: &[(bool, Vec<Operation>)], seed: u64) -> Vec<Vec<u8>> {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, "one", 0);
    fixture.files.set_random_blocking(seed);
    let mut replies = Vec::new();
    for (cached, operations) in calls {
        let body = encode_call(&mut client, operations, *cached);
        for _ in 0..2 {
            replies.push(fixture.call(&client.connection, &client.principal, body.clone()).0);
        }
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn random_blocking_does_not_change_replies(
        calls in prop::collection::vec((any::<bool>(), prop::collection::vec(operation(), 1..7)), 1..25),
        seed in 1u64..,
    ) {
        let (unblocked, blocked) = (replies_to(&calls, 0), replies_to(&calls, seed));
        for (at, (one, other)) in unblocked.iter().zip(&blocked).enumerate() {
            prop_assert_eq!(one, other, "call {}", at / 2);
        }
    }
}
