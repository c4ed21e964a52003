use super::*;

fn full() -> Record<'static> {
    Record {
        seq: 7,
        time_ns: 1_700_000_000_123_456_789,
        class: Class::Operation,
        operation: 29,
        flavour: Flavour::Krb5p,
        minor: 2,
        result: 13,
        principal: b"alice@EXAMPLE.ORG",
        enctype: Some(20),
        uid: Some(1000),
        gid: Some(100),
        address: Some("192.0.2.7".parse().unwrap()),
        port: Some(987),
        client: b"c1.example.org",
        export: b"/srv/data",
        path: b"/srv/data/a/b",
        path2: b"/srv/data/c d",
        file: &[1, 2, 255],
        requested: Some(access::READ),
        granted: Some(0),
        offset: Some(u64::MAX),
        read: Some(4096),
        written: Some(0),
        open_ns: Some(5),
        gap: Some(1),
        key: b"k",
        detail: b"because",
        connection: Some(3),
        xid: Some(u32::MAX),
        pid: None,
        login: None,
        mode: None,
        transport: None,
        fingerprint: b"",
        certificate: b"",
    }
}

#[test]
fn encoding_matches_documented_bytes() {
    let mut bytes = Vec::new();
    full().encode(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = "070000000000000015cd853dfe9c97170104021d00fffbff000d11616c696365404558414d504c452e4f524714e8076404c0000207db070e63312e6578616d\
                  706c652e6f7267092f7372762f64617461042f612f620d2f7372762f646174612f632064030102ff0100ffffffffffffffffff018020000501016b07626563\
                  6175736503ffffffff0f";
    assert_eq!(text, golden);
    let local = Record {
        flavour: Flavour::Local,
        operation: 18,
        uid: Some(1000),
        pid: Some(300),
        login: Some(u32::MAX),
        ..Record::default()
    };
    bytes.clear();
    local.encode(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "00000000000000000000000000000000010500120008000003e807ac02ffffffff0f");
    let chmod = Record { operation: 34, mode: Some(0o4755), ..Record::default() };
    bytes.clear();
    chmod.encode(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "0000000000000000000000000000000001000022000000000 4ed13".replace(' ', ""));
    assert_eq!(Record::decode(&bytes, &mut Vec::new()), Ok(chmod));
    let certified = Record {
        operation: 34,
        transport: Some(2),
        fingerprint: &[7; 32],
        certificate: b"n7",
        ..Record::default()
    };
    bytes.clear();
    certified.encode(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        ["0000000000000000000000000000000001000022000000003802", "20", &"07".repeat(32), "026e37"]
            .concat()
    );
    assert_eq!(Record::decode(&bytes, &mut Vec::new()), Ok(certified));
    let small =
        Record { seq: 1, time_ns: 2, operation: 9, uid: Some(1), path: b"/x", ..Record::default() };
    bytes.clear();
    small.encode(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "0100000000000000020000000000000001000009000804000001022f78");
}

proptest::proptest! {
    #[test]
    fn encoded_record_decodes_unchanged(
        result in 0u32..3, uid: Option<u32>, pid: Option<u32>, login: Option<u32>, offset: Option<u64>, v6: bool, path in proptest::collection::vec(1u8.., 0..40), below: bool, key in "[a-z]{0,9}"
    ) {
        let inner = [b"/srv/data/".as_slice(), &path].concat();
        let address = if v6 { "2001:db8::1".parse().ok() } else { None };
        let path = if below { inner.as_slice() } else { path.as_slice() };
        let record = Record { result, uid, pid, login, offset, address, path, key: key.as_bytes(), ..full() };
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        record.encode(&mut bytes);
        proptest::prop_assert_eq!(Record::decode(&bytes, &mut scratch).unwrap(), record);
    }

    #[test]
    fn decoded_record_encodes_unchanged(bytes in proptest::collection::vec(0u8.., 25..90), class in 1u8..6, flavour in 0u8..6) {
        let mut bytes = bytes;
        bytes[16..19].copy_from_slice(&[class, flavour, 1]);
        bytes[24] = 0;
        let mut scratch = Vec::new();
        if let Ok(record) = Record::decode(&bytes, &mut scratch) {
            let mut again = Vec::new();
            record.encode(&mut again);
            let mut scratch = Vec::new();
            proptest::prop_assert_eq!(&Record::decode(&again, &mut scratch).unwrap(), &record);
        }
    }
}

#[test]
fn longest_record_fits_and_lists_truncated_fields() {
    let long = [b'x'; PATH_LEN_MAX + 1];
    let (number, word) = (Some(u64::MAX), Some(u32::MAX));
    let longest = Record {
        result: u32::MAX,
        enctype: word,
        uid: word,
        gid: word,
        address: "2001:db8::1".parse().ok(),
        port: Some(u16::MAX),
        requested: word,
        granted: word,
        offset: number,
        read: number,
        written: number,
        open_ns: number,
        gap: number,
        connection: number,
        xid: word,
        pid: word,
        login: word,
        mode: word,
        transport: word,
        principal: &long,
        client: &long,
        export: &long,
        path: &long,
        path2: &long,
        file: &long,
        key: &long,
        detail: &long,
        ..full()
    };
    let (path, text) = (&*truncate_path(&long), &long[..TEXT_LEN_MAX]);
    let note =
        b"; too long and cut: principal, client, export, path, new path, file id, key, detail";
    let detail = &[&long[..TEXT_LEN_MAX - note.len()], note].concat();
    let cut = Record {
        principal: text,
        client: text,
        export: path,
        path,
        path2: path,
        file: text,
        key: text,
        detail,
        ..longest
    };
    let mut bytes = b"before".to_vec();
    longest.encode(&mut bytes);
    let mut scratch = Vec::new();
    assert_eq!(Record::decode(bytes.strip_prefix(b"before").unwrap(), &mut scratch), Ok(cut));
}

#[test]
fn truncated_record_does_not_decode() {
    let mut bytes = Vec::new();
    full().encode(&mut bytes);
    for len in 0..bytes.len() {
        assert!(Record::decode(&bytes[..len], &mut Vec::new()).is_err(), "{len}");
    }
    bytes.push(0);
    assert_eq!(Record::decode(&bytes, &mut Vec::new()), Err(RecordError::Longer));
}
