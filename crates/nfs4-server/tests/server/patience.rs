//! A file system that says at random that it would have to wait, wherever it may: calls stop before
//! what would wait, go on later, and come to what they would have come to.

use proptest::prelude::*;
use vouch_nfs4::op::{self, Args, CreateHow, OpenClaim, OpenHow, ShareAccess, ShareDeny, StableHow};
use vouch_nfs4::{Bytes, ClientId, Cookie, Name, OwnerSeq, StateOwner, Stateid, Verifier};

use crate::world::{Client, Packed, World, compound, getattr, lookup, mode};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// One operation of a compound; names are numbers below four.
#[derive(Clone, Debug)]
enum Act {
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

fn act() -> impl Strategy<Value = Act> {
    let n = 0..NAMES.len();
    prop_oneof![
        4 => Just(Act::Export),
        4 => n.clone().prop_map(Act::Lookup),
        1 => Just(Act::Parent),
        2 => Just(Act::Save),
        1 => Just(Act::Restore),
        3 => prop::sample::subsequence(vec![1u32, 3, 4, 12, 20, 33, 35, 36, 42, 45, 47, 53], 1..6).prop_map(Act::Attributes),
        1 => Just(Act::Access),
        2 => n.clone().prop_map(Act::MakeDirectory),
        1 => n.clone().prop_map(Act::MakeLink),
        1 => Just(Act::ReadLink),
        5 => (n.clone(), 1u32..4, 0u8..5, prop::option::of(0u64..3))
            .prop_map(|(name, access, how, size)| Act::Open { name, access, how, size: size.map(|size| size * 700) }),
        1 => Just(Act::CloseCurrent),
        3 => (0u64..5000, 0usize..600, prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)])
            .prop_map(|(at, len, stable)| Act::Write { at, len, stable }),
        2 => (0u64..5000).prop_map(|at| Act::Read { at }),
        1 => (0u64..5000).prop_map(|at| Act::ReadPlus { at }),
        1 => Just(Act::Commit),
        1 => (0u32..0o1000).prop_map(Act::SetMode),
        1 => (0u64..9000).prop_map(Act::SetSize),
        2 => n.clone().prop_map(Act::Remove),
        2 => (n.clone(), n.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        1 => n.clone().prop_map(Act::Link),
        1 => Just(Act::List),
        1 => n.clone().prop_map(Act::SetXattr),
        1 => n.prop_map(Act::GetXattr),
        1 => Just(Act::ListXattrs),
        1 => Just(Act::Allocate),
        1 => Just(Act::Copy),
    ]
}

/// The bytes of a compound: after SEQUENCE in 4.2, as it is in 4.0.
fn body(client: &mut Client<'_>, acts: &[Act], kept: bool) -> Vec<u8> {
    let attrs: Vec<Packed> = acts.iter().map(packed).collect();
    let data = [7u8; 600];
    let name = |at: usize| Name(NAMES[at]);
    let mut ops = vec![client.sequence(kept)];
    for (act, attrs) in acts.iter().zip(&attrs) {
        match act {
            Act::Export => ops.extend([Args::Putrootfh, lookup("export")]),
            Act::Lookup(at) => ops.push(Args::Lookup(op::LookupArgs { name: name(*at) })),
            Act::Parent => ops.push(Args::Lookupp),
            Act::Save => ops.push(Args::Savefh),
            Act::Restore => ops.push(Args::Restorefh),
            Act::Attributes(wanted) => ops.push(getattr(wanted)),
            Act::Access => ops.push(Args::Access(op::AccessArgs { access: op::Access(0x3f) })),
            Act::MakeDirectory(at) => {
                let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
                ops.push(Args::Create(op::CreateArgs { kind, name: name(*at), attrs: attrs.fattr() }));
            }
            Act::MakeLink(at) => {
                let kind = op::CreateType::Symlink(b"target");
                ops.push(Args::Create(op::CreateArgs { kind, name: name(*at), attrs: attrs.fattr() }));
            }
            Act::ReadLink => ops.push(Args::Readlink),
            Act::Open { name: at, access, how, .. } => ops.push(Args::Open(op::OpenArgs {
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
            Act::CloseCurrent => ops.push(Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: Stateid::CURRENT })),
            Act::Write { at, len, stable } => {
                let data = Bytes(&data[..*len]);
                ops.push(Args::Write(op::WriteArgs { stateid: Stateid::ANONYMOUS, offset: *at, stable: *stable, data }));
            }
            Act::Read { at } => ops.push(Args::Read(op::ReadArgs { stateid: Stateid::ANONYMOUS, offset: *at, count: 900 })),
            Act::ReadPlus { at } => ops.push(Args::ReadPlus(op::ReadPlusArgs { stateid: Stateid::ANONYMOUS, offset: *at, count: 900 })),
            Act::Commit => ops.push(Args::Commit(op::CommitArgs { offset: 0, count: 0 })),
            Act::SetMode(_) | Act::SetSize(_) => {
                ops.push(Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.fattr() }));
            }
            Act::Remove(at) => ops.push(Args::Remove(op::RemoveArgs { name: name(*at) })),
            Act::Rename(from, to) => ops.push(Args::Rename(op::RenameArgs { old: name(*from), new: name(*to) })),
            Act::Link(at) => ops.push(Args::Link(op::LinkArgs { name: name(*at) })),
            Act::List => ops.push(Args::Readdir(op::ReaddirArgs {
                cookie: Cookie(0),
                verifier: Verifier([0; 8]),
                dir_count: 4096,
                max_count: 4096,
                wanted: vouch_nfs4::Bitmap::of(&[1, 4, 20, 33]),
            })),
            Act::SetXattr(at) => {
                let (name, value) = (name(*at), Bytes(&data[..9]));
                ops.push(Args::Setxattr(op::SetxattrArgs { option: op::SetxattrOption::Either, name, value }));
            }
            Act::GetXattr(at) => ops.push(Args::Getxattr(op::GetxattrArgs { name: name(*at) })),
            Act::ListXattrs => ops.push(Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(0), max_count: 1000 })),
            Act::Allocate => ops.push(Args::Allocate(op::AllocateArgs { stateid: Stateid::ANONYMOUS, offset: 100, length: 900 })),
            Act::Copy => ops.push(Args::Copy(op::CopyArgs {
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

fn packed(act: &Act) -> Packed {
    use vouch_nfs4::Attributes;
    match act {
        Act::Open { size: Some(size), .. } | Act::SetSize(size) => {
            Packed::new(&[4], &Attributes { size: Some(*size), ..Attributes::default() })
        }
        Act::SetMode(bits) => mode(*bits),
        _ => mode(0o755),
    }
}

/// Replies to all calls, each sent twice.
fn transcript(calls: &[(bool, Vec<Act>)], reluctance: u64) -> Vec<Vec<u8>> {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    world.files.set_reluctance(reluctance);
    let mut replies = Vec::new();
    for (kept, acts) in calls {
        let body = body(&mut client, acts, *kept);
        for _ in 0..2 {
            replies.push(world.call(&client.connection, &client.principal, body.clone()).0);
        }
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn what_had_to_wait_comes_to_the_same(
        calls in prop::collection::vec((any::<bool>(), prop::collection::vec(act(), 1..7)), 1..25),
        seed in 1u64..,
    ) {
        let (patient, reluctant) = (transcript(&calls, 0), transcript(&calls, seed));
        for (at, (one, other)) in patient.iter().zip(&reluctant).enumerate() {
            prop_assert_eq!(one, other, "call {}", at / 2);
        }
    }
}
