use super::fixture::{
    BOTH, Fixture, READ, Rule, SplitMix64, WRITE, mode, name, read, refused, write,
};
use crate::{Blocking, Content, CreateHow, Error, ReadInto, SeekTarget, SetAttributes, Stability};

pub(super) const RULES: &[Rule] = &[
    ("reads_return_written_data", reads_return_written_data),
    ("holes_read_as_zeros_and_are_found", holes_read_as_zeros_and_are_found),
    ("truncation_cuts_and_extends", truncation_cuts_and_extends),
    ("unlinked_file_stays_while_open", unlinked_file_stays_while_open),
    ("open_file_is_limited_to_requested_access", open_file_is_limited_to_requested_access),
    ("regions_are_allocated_and_punched", regions_are_allocated_and_punched),
    ("ranges_are_copied_and_cloned", ranges_are_copied_and_cloned),
    ("commits_succeed", commits_succeed),
    ("open_files_of_others_are_refused", open_files_of_others_are_refused),
    ("random_writes_agree_with_model", random_writes_agree_with_model),
];

const FAR: u64 = 1 << 20;

fn reads_return_written_data(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"");
    let open = fixture.open(&file, BOTH);
    let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    write(&*open, 0, &content);
    assert_eq!(
        open.attributes().expect("the file is open").size,
        100_000,
        "the size is what was written"
    );
    for (offset, len) in [(0, 10), (99_990, 10), (4095, 2), (0, 100_000), (1, 50_000)] {
        let (bytes, eof) = read(&*open, offset, len);
        assert_eq!(bytes, content[offset as usize..offset as usize + len], "{len} at {offset}");
        assert_eq!(
            eof,
            offset as usize + len == content.len(),
            "end of file is reported exactly, {len} at {offset}"
        );
    }
    assert_eq!(
        read(&*open, 99_995, 100),
        (content[99_995..].to_vec(), true),
        "a read past the end is short"
    );
    assert_eq!(read(&*open, 100_000, 1), (Vec::new(), true), "a read at the end is empty");
    assert_eq!(
        read(&*open, u64::MAX - 1, 100),
        (Vec::new(), true),
        "a read far past the end is empty"
    );
    let mut bytes = b"before".to_vec();
    open.read(0, 3, ReadInto { bytes: &mut bytes, span_allowed: false }, Blocking::Allowed)
        .expect("reading succeeds");
    assert_eq!(bytes, [b"before", &content[..3]].concat(), "a read appends");
    let mut bytes = Vec::new();
    match open
        .read(10, 70_000, ReadInto { bytes: &mut bytes, span_allowed: true }, Blocking::Allowed)
        .expect("reading succeeds")
    {
        Content::Bytes { len, eof } => {
            assert_eq!((len, eof, &bytes[..]), (70_000, false, &content[10..70_010]), "bytes")
        }
        Content::Span { span, eof } => {
            let mut sent = vec![0; span.len];
            std::os::unix::fs::FileExt::read_exact_at(&*span.file, &mut sent, span.offset)
                .expect("a span can be read");
            assert_eq!((eof, &sent[..]), (false, &content[10..70_010]), "a span");
        }
    }
    refused!(
        open.write(u64::MAX - 1, b"xx", Stability::Unstable, Blocking::Allowed),
        Error::TooLarge | Error::Invalid,
        "a write past all sizes"
    );
}

fn holes_read_as_zeros_and_are_found(fixture: &Fixture) {
    if !fixture.fs.traits().sparse {
        return;
    }
    let file = fixture.file(&fixture.root(), "a", b"");
    let open = fixture.open(&file, BOTH);
    write(&*open, FAR, b"data");
    assert_eq!(read(&*open, 0, 8192), (vec![0; 8192], false), "a hole reads as zeros");
    assert!(fixture.attributes(&file).space_used < FAR, "a hole takes no space");
    let seek = |offset, target| open.seek(offset, target);
    assert_eq!(seek(0, SeekTarget::Data).expect("there is data"), FAR, "data after a hole");
    assert_eq!(seek(0, SeekTarget::Hole).expect("there is a hole"), 0, "a hole at the offset");
    assert_eq!(
        seek(FAR, SeekTarget::Hole).expect("the end counts as a hole"),
        FAR + 4,
        "the end counts as a hole"
    );
    refused!(seek(FAR + 4, SeekTarget::Data), Error::NoSuchRegion, "no data at the end");
    refused!(seek(FAR + 100, SeekTarget::Hole), Error::NoSuchRegion, "no hole past the end");
}

fn truncation_cuts_and_extends(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"0123456789");
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    fixture.set(&file, size(4));
    assert_eq!(fixture.content(&file), b"0123", "a file is truncated by its identity");
    let open = fixture.open(&file, BOTH);
    open.truncate(8).expect("open for writing");
    assert_eq!(fixture.content(&file), b"0123\0\0\0\0", "truncated data does not reappear");
    fixture
        .fs
        .set_attributes(&fixture.owner, &file, Some(&*open), &size(2))
        .expect("a truncation through the open file succeeds");
    assert_eq!(fixture.content(&file), b"01", "a file is truncated through an open file");
    let too_large = fixture.fs.set_attributes(&fixture.owner, &file, None, &size(u64::MAX));
    refused!(too_large, Error::TooLarge | Error::Invalid, "a size above the limit");
    let directory = fixture.directory(&root, "d", 0o755);
    refused!(
        fixture.fs.set_attributes(&fixture.owner, &directory, None, &size(0)),
        Error::IsDirectory | Error::Invalid,
        "a directory"
    );
}

fn unlinked_file_stays_while_open(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"content");
    let open = fixture.open(&file, BOTH);
    fixture.remove(&root, "a");
    assert_eq!(read(&*open, 0, 100).0, b"content", "reading succeeds");
    write(&*open, 0, b"C");
    assert_eq!(
        open.attributes().expect("the file is open").links,
        0,
        "an unlinked file has no links"
    );
    assert_eq!(fixture.attributes(&file).size, 7, "the identity is valid while the file is open");
    let other = fixture.file(&root, "a", b"other");
    assert_eq!(read(&*open, 0, 100).0, b"Content", "a new file of the same name is another file");
    let replaced = fixture.open(&other, READ);
    fixture.file(&root, "b", b"b");
    fixture.rename(&root, "b", &root, "a").expect("a rename");
    assert_eq!(
        read(&*replaced, 0, 100).0,
        b"other",
        "a replaced file stays readable while it is open"
    );
    drop(open);
    refused!(fixture.fs.attributes(&file, Blocking::Allowed), Error::Stale, "after the last close");
}

fn open_file_is_limited_to_requested_access(fixture: &Fixture) {
    let file = fixture.file(&fixture.root(), "a", b"content");
    let (reader, writer) = (fixture.open(&file, READ), fixture.open(&file, WRITE));
    refused!(
        reader.write(0, b"x", Stability::Unstable, Blocking::Allowed),
        Error::Access,
        "writing a file open for reading"
    );
    refused!(
        reader.truncate(0),
        Error::Access | Error::Invalid,
        "truncating a file open for reading"
    );
    refused!(reader.allocate(0, 1), Error::Access, "allocating in a file open for reading");
    let into = ReadInto { bytes: &mut Vec::new(), span_allowed: false };
    refused!(
        writer.read(0, 1, into, Blocking::Allowed),
        Error::Access,
        "reading a file open for writing"
    );
    assert_eq!(
        (reader.access(), writer.access()),
        (READ, WRITE),
        "the access of the open is reported"
    );
}

fn regions_are_allocated_and_punched(fixture: &Fixture) {
    let file = fixture.file(&fixture.root(), "a", &[7; 65_536]);
    let open = fixture.open(&file, BOTH);
    match open.deallocate(4096, 32_768) {
        Err(Error::NotSupported) => eprintln!("not applicable: no holes can be made"),
        punched => {
            punched.expect("punching a hole succeeds");
            assert_eq!(fixture.attributes(&file).size, 65_536, "the size stays");
            assert_eq!(read(&*open, 4096, 32_768).0, vec![0; 32_768], "a hole reads as zeros");
            assert_eq!(
                (read(&*open, 0, 4096).0, read(&*open, 36_864, 10).0),
                (vec![7; 4096], vec![7; 10]),
                "data around the range stays"
            );
            if fixture.fs.traits().sparse {
                assert_eq!(
                    open.seek(0, SeekTarget::Hole).expect("an entry exists"),
                    4096,
                    "the look-up succeeds"
                );
            }
            open.deallocate(1, 10).expect("any range");
            assert_eq!(
                read(&*open, 0, 12).0,
                [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
                "a hole has exact ends"
            );
        }
    }
    match open.allocate(65_536, 65_536) {
        Err(Error::NotSupported) => eprintln!("not applicable: no space can be reserved"),
        allocated => {
            allocated.expect("space can be reserved");
            assert_eq!(
                fixture.attributes(&file).size,
                131_072,
                "the file keeps the reserved blocks"
            );
        }
    }
}

fn ranges_are_copied_and_cloned(fixture: &Fixture) {
    let root = fixture.root();
    let content: Vec<u8> = (0..20_000u32).map(|at| (at % 249) as u8).collect();
    let (from, to) = (fixture.file(&root, "a", &content), fixture.file(&root, "b", b""));
    let (source, target) = (fixture.open(&from, READ), fixture.open(&to, BOTH));
    let mut done = 0;
    loop {
        match target
            .copy_from(&*source, 100 + done, 7 + done, 50_000 - done)
            .expect("a range can be copied")
        {
            0 => break,
            part => done += part,
        }
    }
    assert_eq!(done, 19_900, "a copy ends at the end of the source");
    assert_eq!(read(&*target, 7, 100_000).0, content[100..], "the bytes are the same");
    refused!(
        source.copy_from(&*target, 0, 0, 1),
        Error::Access,
        "copying into a file open for reading"
    );
    let block = u64::from(fixture.fs.traits().clone_block_len);
    match target.clone_range(&*source, 0, 0, 0) {
        Err(Error::NotSupported | Error::CrossesFileSystems) => {
            assert_eq!(block, 0, "a file system without cloning does not report support")
        }
        cloned => {
            cloned.expect("a file can be cloned");
            assert_eq!(read(&*target, 0, 20_000).0, content, "a clone holds the same");
            refused!(
                target.clone_range(&*source, 1, 0, block),
                Error::Invalid,
                "cloning at an unaligned offset"
            );
        }
    }
}

fn commits_succeed(fixture: &Fixture) {
    let root = fixture.root();
    let made =
        fixture.create(&root, "a", CreateHow::Guarded, &mode(0o644)).expect("creation succeeds");
    for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
        let written =
            made.open.write(0, b"data", stability, Blocking::Allowed).expect("writing succeeds");
        assert!(written.stability >= stability, "at least the requested durability");
        match made.open.write(0, b"data", stability, Blocking::Forbidden) {
            Ok(_) | Err(Error::WouldBlock) => {}
            Err(error) => panic!("without blocking a write fails with {error:?}"),
        }
    }
    made.open.commit(0, 0, Blocking::Allowed).expect("the commit succeeds");
    made.open.commit(1, 2, Blocking::Allowed).expect("the commit of a range succeeds");
    fixture
        .fs
        .sync_metadata(&[made.id, root], Blocking::Allowed)
        .expect("names and attributes can be made durable");
    fixture.remove(&root, "a");
    drop(made.open);
    fixture
        .fs
        .sync_metadata(&[made.id, root], Blocking::Allowed)
        .expect("removed files are skipped");
}

fn open_files_of_others_are_refused(fixture: &Fixture) {
    let other = crate::memory::MemoryFs::new();
    let file = crate::FileSystem::create(
        &other,
        &crate::Caller::root(),
        &crate::FileSystem::root(&other),
        name("x"),
        CreateHow::Guarded,
        &mode(0o644),
        BOTH,
    )
    .expect("creation succeeds");
    refused!(
        fixture.fs.attributes(&file.id, Blocking::Allowed),
        Error::BadId | Error::Stale,
        "an identity of another file system"
    );
    let here = fixture.open(&fixture.file(&fixture.root(), "a", b"x"), BOTH);
    refused!(
        here.copy_from(&*file.open, 0, 0, 1),
        Error::CrossesFileSystems,
        "copying from another file system"
    );
    refused!(
        here.clone_range(&*file.open, 0, 0, 0),
        Error::CrossesFileSystems,
        "cloning from another file system"
    );
}

fn random_writes_agree_with_model(fixture: &Fixture) {
    const SIZE_MAX: u64 = 100_000;
    for seed in 0..8 {
        let mut random = SplitMix64(seed);
        let file = fixture.file(&fixture.root(), &format!("file{seed}"), b"");
        let open = fixture.open(&file, BOTH);
        let mut model: Vec<u8> = Vec::new();
        for step in 0..100 {
            let (offset, len) = (random.roll(SIZE_MAX), random.roll(10_000) as usize + 1);
            match random.roll(5) {
                0 | 1 => {
                    let data: Vec<u8> = (0..len).map(|_| random.roll(256) as u8).collect();
                    write(&*open, offset, &data);
                    model.resize(model.len().max(offset as usize + len), 0);
                    model[offset as usize..offset as usize + len].copy_from_slice(&data);
                }
                2 => {
                    open.truncate(offset).expect("the file is open for writing");
                    model.resize(offset as usize, 0);
                }
                3 if open.deallocate(offset, len as u64).is_ok() => {
                    let end = model.len().min(offset as usize + len);
                    if let Some(hole) = model.get_mut(offset as usize..end) {
                        hole.fill(0);
                    }
                }
                _ => {}
            }
            let (bytes, eof) = read(&*open, offset, len);
            let end = model.len().min(offset as usize + len);
            let expected = model.get(offset as usize..end).unwrap_or_default();
            assert!(bytes == expected, "seed {seed}, step {step}: {len} bytes at {offset}");
            assert_eq!(
                eof,
                offset as usize + len >= model.len(),
                "seed {seed}, step {step}: end of file"
            );
        }
        assert!(fixture.content(&file) == model, "seed {seed}: the whole file");
    }
}
