use proptest::prelude::*;
use vouch_xdr::{Error, Reader, Writer};

use crate::attr::FileType;
use crate::sample::Sampler;
use crate::{
    Attributes, Bitmap, Bytes, ChangeId, CompoundHead, DeviceId, Fattr, Filehandle, Fsid, List,
    Name, ReplyHead, ReplyWriter, Stateid, Status, Time, Wire, cb, flex_files, op,
};

macro_rules! round_trip {
    ($value:expr, $decode:expr) => {{
        let value = $value;
        let mut w = Writer::new();
        value.encode(&mut w);
        let bytes = w.into_bytes();
        prop_assert_eq!(bytes.len() % 4, 0);
        let mut r = Reader::new(&bytes);
        let read = $decode(&mut r);
        prop_assert_eq!(read.as_ref(), Ok(&value));
        prop_assert_eq!(r.remaining(), 0);
        for len in (0..bytes.len()).step_by(4) {
            prop_assert!($decode(&mut Reader::new(&bytes[..len])).is_err());
        }
    }};
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decodes_encoded_arguments(seed: u64) {
        let mut s = Sampler::new(seed);
        for &number in op::Op::ALL {
            round_trip!(op::Args::sample(number, &mut s), |r| op::Args::decode(2, r));
        }
    }

    #[test]
    fn decodes_encoded_results(seed: u64) {
        let mut s = Sampler::new(seed);
        for &number in op::Op::ALL {
            round_trip!(op::Results::sample(number, &mut s), op::Results::decode);
        }
    }

    #[test]
    fn decodes_encoded_callbacks(seed: u64) {
        let mut s = Sampler::new(seed);
        for &number in cb::Op::ALL {
            round_trip!(cb::Args::sample(number, &mut s), |r| cb::Args::decode(2, r));
            round_trip!(cb::Results::sample(number, &mut s), cb::Results::decode);
        }
    }

    #[test]
    fn decodes_encoded_attributes(seed: u64) {
        let mut s = Sampler::new(seed);
        let (has, wanted) = (Bitmap::sample(&mut s), Bitmap::sample(&mut s));
        let all = Attributes::sample(has, &mut s);
        let mut w = Writer::new();
        all.encode(wanted, &mut w);
        let fattr = Fattr::decode(&mut Reader::new(w.as_bytes())).unwrap();
        prop_assert_eq!(fattr.mask, has.and(wanted).and(Attributes::KNOWN));
        let read = fattr.attributes().unwrap();
        prop_assert_eq!(read.present(Attributes::KNOWN), fattr.mask);
        let mut again = Writer::new();
        read.encode(Attributes::KNOWN, &mut again);
        prop_assert_eq!(again.as_bytes(), w.as_bytes());
    }

    #[test]
    fn decodes_encoded_flexible_file_layouts(seed: u64) {
        let mut s = Sampler::new(seed);
        round_trip!(flex_files::Layout::sample(&mut s), flex_files::Layout::decode);
        round_trip!(flex_files::Device::sample(&mut s), flex_files::Device::decode);
    }

    #[test]
    fn garbage_never_panics(words in proptest::collection::vec(prop_oneof![0u32..8, any::<u32>()], 0..64), number in 3u32..76, minor in 0u32..3) {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        let _ = op::Args::decode(minor, &mut Reader::new(&bytes));
        let _ = op::Results::decode(&mut Reader::new(&bytes));
        let _ = cb::Args::decode(minor, &mut Reader::new(&bytes));
        let _ = cb::Results::decode(&mut Reader::new(&bytes));
        let _ = flex_files::Layout::decode(&mut Reader::new(&bytes));
        let _ = flex_files::Device::decode(&mut Reader::new(&bytes));
        if let Ok(fattr) = Fattr::decode(&mut Reader::new(&bytes[4..])) {
            let _ = fattr.settings(Attributes::KNOWN);
            let _ = fattr.attributes();
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn compound_golden_bytes() {
    // RFC 8881 §16.2.1: tag, minorversion, argarray.
    let golden = [
        words(&[2]),
        b"hi\0\0".to_vec(),
        words(&[1, 3, 24, 15, 3]),
        b"srv\0".to_vec(),
        words(&[10]),
    ]
    .concat();
    let mut w = Writer::new();
    let count_at = CompoundHead { tag: b"hi", minor: 1, count: 0 }.encode(&mut w);
    let ops = [
        op::Args::Putrootfh,
        op::Args::Lookup(op::LookupArgs { name: Name(b"srv") }),
        op::Args::Getfh,
    ];
    ops.iter().for_each(|args| args.encode(&mut w));
    w.set_u32(count_at, 3);
    assert_eq!(w.as_bytes(), golden);

    let mut r = Reader::new(&golden);
    assert_eq!(CompoundHead::decode(&mut r), Ok(CompoundHead { tag: b"hi", minor: 1, count: 3 }));
    for args in ops {
        assert_eq!(op::Args::decode(1, &mut r), Ok(args));
    }
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn reply_golden_bytes() {
    // RFC 8881 §16.2.2: status, tag, resarray.
    let golden = [
        words(&[2, 0, 2]),                 // NFS4ERR_NOENT, no tag, two results
        words(&[9, 0, 1, 0x1a, 20]),       // GETATTR, OK, one word: bits 1, 3, 4; 20 bytes
        words(&[2, 0, 7, 0, 4096, 15, 2]), // a directory, change 7, size 4096; LOOKUP, NOENT
    ]
    .concat();
    let attributes = Attributes {
        size: Some(4096),
        change: Some(ChangeId(7)),
        file_type: Some(FileType::Directory),
        fileid: Some(9),
        ..Attributes::default()
    };
    let mut w = Writer::new();
    let head = ReplyWriter::begin(&mut w, b"");
    op::GetattrOk::write(&mut w, Bitmap::of(&[1, 3, 4, 33]), &attributes);
    op::Results::failure(op::Op::LOOKUP, Status::NOENT).encode(&mut w);
    head.finish(&mut w, Status::NOENT, 2);
    assert_eq!(w.as_bytes(), golden);

    let mut r = Reader::new(&golden);
    assert_eq!(
        ReplyHead::decode(&mut r),
        Ok(ReplyHead { status: Status::NOENT, tag: b"", count: 2 })
    );
    let Ok(op::Results::Getattr(Ok(ok))) = op::Results::decode(&mut r) else { panic!("GETATTR") };
    assert_eq!(ok.attrs.attributes(), Ok(Attributes { fileid: None, ..attributes }));
    assert_eq!(op::Results::decode(&mut r), Ok(op::Results::Lookup(Err(Status::NOENT))));
}

#[test]
fn open_golden_bytes() {
    // RFC 8881 §18.16.1: seqid, share_access, share_deny, owner, openhow, claim.
    let golden = [
        words(&[18, 0, 3, 0, 0, 5, 1]), // OPEN, seqid 0, BOTH, NONE, clientid 5, owner of one byte
        b"o\0\0\0".to_vec(),
        words(&[1, 1, 2, 0, 2, 4, 0o644]), // CREATE, GUARDED, two words of bitmap: bit 33, 4 bytes: mode 0644
        words(&[0, 1]),                    // CLAIM_NULL, one byte
        b"f\0\0\0".to_vec(),
    ]
    .concat();
    let mut r = Reader::new(&golden);
    let Ok(op::Args::Open(open)) = op::Args::decode(1, &mut r) else { panic!("OPEN") };
    assert_eq!(r.remaining(), 0);
    let op::OpenHow::Create(op::CreateHow::Guarded(attrs)) = open.how else { panic!("GUARDED") };
    assert_eq!(attrs.settings(Attributes::KNOWN).map(|set| set.mode), Ok(Some(0o644)));
    assert_eq!(
        (open.owner.client.0, open.owner.owner.0, open.claim),
        (5, &b"o"[..], op::OpenClaim::Null(Name(b"f")))
    );
    let mut w = Writer::new();
    op::Args::Open(open).encode(&mut w);
    assert_eq!(w.as_bytes(), golden);
}

#[test]
fn encodes_golden_read_and_write() {
    // RFC 8881 §18.22 and 18.32.
    let stateid = Stateid { seq: crate::StateSeq(1), other: *b"abcdefghijkl" };
    let state = [words(&[1]), b"abcdefghijkl".to_vec()].concat();
    let mut w = Writer::new();
    op::Args::Write(op::WriteArgs {
        stateid,
        offset: 1 << 32,
        stable: op::StableHow::FileSync,
        data: crate::Bytes(b"12345"),
    })
    .encode(&mut w);
    assert_eq!(
        w.as_bytes(),
        [words(&[38]), state, words(&[1, 0, 2, 5]), b"12345\0\0\0".to_vec()].concat()
    );

    let mut in_place = Writer::new();
    let read = op::ReadWriter::begin(&mut in_place);
    in_place.bytes_mut().extend_from_slice(b"12345");
    read.finish(&mut in_place, true);
    assert_eq!(in_place.as_bytes(), [words(&[25, 0, 1, 5]), b"12345\0\0\0".to_vec()].concat());
    let mut at_once = Writer::new();
    op::Results::Read(Ok(op::ReadOk { eof: true, data: crate::Bytes(b"12345") }))
        .encode(&mut at_once);
    assert_eq!(at_once.as_bytes(), in_place.as_bytes());
}

#[test]
fn read_plus_writer_matches_encoder() {
    let mut w = Writer::new();
    let mut plus = op::ReadPlusWriter::begin(&mut w);
    plus.hole(&mut w, 0, 4096);
    let start = plus.begin_data(&mut w, 4096);
    w.bytes_mut().extend_from_slice(b"abc");
    plus.end_data(&mut w, start);
    plus.finish(&mut w, true);
    let contents = vec![
        op::Content::Hole(op::HoleSegment { offset: 0, length: 4096 }),
        op::Content::Data(op::DataSegment { offset: 4096, data: crate::Bytes(b"abc") }),
    ];
    let ok = op::ReadPlusOk { eof: true, contents: crate::List(contents) };
    assert_eq!(
        op::Results::decode(&mut Reader::new(w.as_bytes())),
        Ok(op::Results::ReadPlus(Ok(ok)))
    );
}

#[test]
fn sequence_golden_bytes() {
    // RFC 8881 §18.46.
    let golden = [words(&[53]), vec![7; 16], words(&[3, 1, 9, 1])].concat();
    let args = op::SequenceArgs {
        session: crate::SessionId([7; 16]),
        seq: crate::SlotSeq(3),
        slot: crate::SlotId(1),
        highest_slot: crate::SlotId(9),
        cache_this: true,
    };
    assert_eq!(op::Args::decode(1, &mut Reader::new(&golden)), Ok(op::Args::Sequence(args)));
    assert_eq!(
        op::Args::decode(0, &mut Reader::new(&golden)),
        Ok(op::Args::Illegal(op::Op::SEQUENCE))
    );
}

#[test]
fn decodes_operations_only_from_their_minor_version() {
    for (number, since) in [
        (3, Some(0)),
        (39, Some(0)),
        (40, Some(1)),
        (58, Some(1)),
        (59, Some(2)),
        (75, Some(2)),
        (2, None),
        (76, None),
    ] {
        assert_eq!(op::Op(number).since(), since, "{number}");
        let bytes = words(&[number]);
        let args = op::Args::decode(
            since.unwrap_or(3u32).wrapping_sub(1).min(2),
            &mut Reader::new(&bytes),
        );
        assert!(since == Some(0) || args == Ok(op::Args::Illegal(op::Op(number))), "{number}");
    }
    assert_eq!(op::Op::ALL.len(), 73);
    assert!(op::Op::ALL.is_sorted());
}

#[test]
fn encodes_golden_callback_recall() {
    // RFC 8881 §20.2. Heads: §16.2.1, with the identifier of RFC 7530 §15.1.
    let golden = [words(&[4, 1]), vec![5; 12], words(&[0, 3]), b"fh1\0".to_vec()].concat();
    let args = cb::CbRecallArgs {
        stateid: Stateid { seq: crate::StateSeq(1), other: [5; 12] },
        truncate: false,
        handle: crate::Filehandle::new(b"fh1").unwrap(),
    };
    assert_eq!(cb::Args::decode(0, &mut Reader::new(&golden)), Ok(cb::Args::Recall(args)));
    let mut w = Writer::new();
    cb::Args::Recall(args).encode(&mut w);
    assert_eq!(w.as_bytes(), golden);
}

#[test]
fn settings_returns_status_for_invalid_attributes() {
    // RFC 8881 §5.5.
    let mut values = Writer::new();
    values.u32(0o600);
    let mode = Fattr { mask: Bitmap::of(&[33]), values: values.as_bytes() };
    assert_eq!(mode.settings(Attributes::KNOWN).map(|set| set.mode), Ok(Some(0o600)));
    assert_eq!(mode.settings(Attributes::KNOWN.without(33)), Err(Status::ATTRNOTSUPP));
    let unknown = Fattr { mask: Bitmap::of(&[90]), values: &[] };
    assert_eq!(unknown.settings(Attributes::KNOWN), Err(Status::ATTRNOTSUPP));
    let read_only = Fattr { mask: Bitmap::of(&[20]), values: &[0; 8] };
    assert_eq!(read_only.settings(Attributes::KNOWN), Err(Status::INVAL));
    for values in [&[0; 0][..], &[0; 3], &[0; 8]] {
        let wrong = Fattr { mask: Bitmap::of(&[33]), values };
        assert_eq!(wrong.settings(Attributes::KNOWN), Err(Status::BADXDR));
    }
    let mut unknown = words(&[4, 0, 0, 0, 1, 0]);
    let fattr = Fattr::decode(&mut Reader::new(&unknown)).unwrap();
    assert_eq!(fattr.settings(Attributes::KNOWN), Err(Status::ATTRNOTSUPP));
    unknown.truncate(20);
    assert!(Fattr::decode(&mut Reader::new(&unknown)).is_err());
}

#[test]
fn refuses_lengths_over_limit_before_allocating() {
    for (bytes, max) in
        [(words(&[22, 129]), 128), (words(&[15, 8193]), 8192), (words(&[55, 65_537]), 65_536)]
    {
        let len = max + 1;
        assert_eq!(op::Args::decode(2, &mut Reader::new(&bytes)), Err(Error::TooLong { len, max }));
    }
    assert!(matches!(
        CompoundHead::decode(&mut Reader::new(&words(&[1025]))),
        Err(Error::TooLong { .. })
    ));
}

#[test]
fn attributes_have_rfc_numbers() {
    // Values are in ascending order, whatever the request's order (RFC 8881 §5.8; RFC 7862 §12.2).
    let attributes = Attributes {
        mode: Some(0o755),
        fsid: Some(Fsid { major: 1, minor: 2 }),
        time_modify: Some(Time { seconds: -1, nanoseconds: 5 }),
        xattr_support: Some(true),
        ..Attributes::default()
    };
    let mut w = Writer::new();
    attributes.encode(Bitmap::of(&[82, 53, 33, 8]), &mut w);
    let golden = [
        words(&[3, 1 << 8, 1 << 1 | 1 << 21, 1 << 18, 36]),
        words(&[0, 1, 0, 2, 0o755, u32::MAX, u32::MAX, 5, 1]),
    ]
    .concat();
    assert_eq!(w.as_bytes(), golden);
}

#[test]
fn flexible_file_golden_bytes() {
    // RFC 8435, section 5.1: ff_layout4.
    let golden = [
        words(&[0, 0, 1, 1]), // no stripes, one mirror, one data server
        vec![7; 16],          // device
        words(&[5]),          // efficiency
        words(&[0, 0, 0, 0]), // anonymous stateid
        words(&[1, 3]),       // one filehandle of three bytes
        b"abc\0".to_vec(),    //
        words(&[4]),          // user
        b"1000".to_vec(),     //
        words(&[3]),          // group
        b"100\0".to_vec(),    //
        words(&[1, 0]),       // NO_LAYOUTCOMMIT, no statistics
    ]
    .concat();
    let server = flex_files::DataServer {
        device: DeviceId([7; 16]),
        efficiency: 5,
        stateid: Stateid::ANONYMOUS,
        handles: List(vec![Filehandle::new(b"abc").unwrap()]),
        user: Bytes(b"1000"),
        group: Bytes(b"100"),
    };
    let mirrors = List(vec![flex_files::Mirror { data_servers: List(vec![server]) }]);
    let layout = flex_files::Layout {
        stripe_unit: 0,
        mirrors,
        flags: flex_files::Flags::NO_LAYOUTCOMMIT,
        stats_interval_s: 0,
    };
    let mut w = Writer::new();
    layout.encode(&mut w);
    assert_eq!(w.as_bytes(), golden);
    assert_eq!(flex_files::Layout::decode(&mut Reader::new(&golden)), Ok(layout));

    // RFC 8435, section 4.1: ff_device_addr4.
    let golden = [
        words(&[1, 3]),
        b"tcp\0".to_vec(),
        words(&[13]),
        b"192.0.2.1.8.1\0\0\0".to_vec(),
        words(&[1, 4, 2, 1 << 20, 1 << 20, 1]), // one version: 4.2, lengths, tightly coupled
    ]
    .concat();
    let (netid, address) = crate::universal_address("192.0.2.1:2049".parse().unwrap());
    let addresses = List(vec![crate::NetAddr {
        netid: Bytes(netid.as_bytes()),
        address: Bytes(address.as_bytes()),
    }]);
    let version = flex_files::DeviceVersion {
        version: 4,
        minor: 2,
        read_len_max: 1 << 20,
        write_len_max: 1 << 20,
        is_tightly_coupled: true,
    };
    let device = flex_files::Device { addresses, versions: List(vec![version]) };
    let mut w = Writer::new();
    device.encode(&mut w);
    assert_eq!(w.as_bytes(), golden);
    assert_eq!(flex_files::Device::decode(&mut Reader::new(&golden)), Ok(device));
}
