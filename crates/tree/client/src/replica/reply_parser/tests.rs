use super::*;
use proptest::prelude::*;
use vouch_oncrpc::{Accepted, Reply, record_mark};
use vouch_tree::protocol::GetDataResult;
use vouch_xdr::Writer;

const XID: u32 = EXERCISE_XID;

fn reply(frames: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut results = Writer::new();
    GetDataResult { frames: frames.iter().map(|frame| frame.as_deref()).collect() }
        .encode(&mut results);
    let mut w = Writer::new();
    Reply::accepted(XID, Accepted::Success(&results.into_bytes())).encode(&mut w);
    w.into_bytes()
}

fn marked(record: &[u8], fragment_len: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut rest = record;
    while rest.len() > fragment_len {
        stream.extend_from_slice(&(fragment_len as u32).to_be_bytes());
        stream.extend_from_slice(&rest[..fragment_len]);
        rest = &rest[fragment_len..];
    }
    stream.extend_from_slice(&record_mark(rest.len()));
    stream.extend_from_slice(rest);
    stream
}

fn expected(frames: &[Option<Vec<u8>>]) -> Vec<ReplyEvent> {
    let frames = frames.iter().map(|frame| ReplyEvent::Frame(XID, frame.clone().map(Bytes::from)));
    frames.chain([ReplyEvent::End(XID)]).collect()
}

#[test]
fn long_frames_arrive_one_by_one() {
    let frames = [Some(vec![1; FRAME_LEN_MAX]), None, Some(vec![2; 100_001]), Some(Vec::new())];
    let stream = marked(&reply(&frames), usize::MAX);
    assert_eq!(parse_stream(&stream, usize::MAX, 4).unwrap(), expected(&frames));
    let (first, _) = stream.split_at(FRAME_LEN_MAX + 100);
    assert_eq!(parse_stream(first, 5000, 4).unwrap(), expected(&frames)[..2]);
}

#[test]
fn wrong_result_count_fails_only_its_call() {
    let frames = [Some(vec![1; 9]), None];
    let stream = [marked(&reply(&frames), 30), marked(b"next", 30)].concat();
    let found = parse_stream(&stream, 50, 3).unwrap();
    assert!(
        matches!(&found[0], ReplyEvent::Garbage(XID, why) if why.contains("answered 3 handles with 2 results")),
        "{found:?}"
    );
    assert_eq!(found[1..], [ReplyEvent::Reply(Bytes::from_static(b"next"))]);
}

#[test]
fn refuses_malformed_results() {
    let whole = reply(&[Some(vec![1; 9])]);
    let spoiled = |at: usize, byte: u8| {
        let mut record = whole.clone();
        record[at] = byte;
        record
    };
    let longer = [&whole[..], &[0; 4]].concat();
    // Wrong status, frame length, padding; trailing bytes; truncation.
    for record in [
        &spoiled(HEAD_LEN + 3, 2),
        &spoiled(HEAD_LEN + 4, 1),
        &spoiled(whole.len() - 1, 1),
        &longer,
        &whole[..whole.len() - 4].to_vec(),
    ] {
        let found = parse_stream(&marked(record, usize::MAX), 7, 1).unwrap();
        assert_eq!(
            found.iter().filter(|a| matches!(a, ReplyEvent::Garbage(XID, _))).count(),
            1,
            "{found:?}"
        );
        assert!(
            !found.iter().any(|a| matches!(a, ReplyEvent::End(_) | ReplyEvent::Reply(_))),
            "{found:?}"
        );
    }
}

#[test]
fn returns_other_replies_whole() {
    let mut w = Writer::new();
    Reply::accepted(8, Accepted::Success(&[1; 40])).encode(&mut w);
    let record = w.into_bytes();
    let refused =
        [&XID.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]]
            .concat();
    let stream = [marked(&record, 11), marked(b"", 1), marked(&refused, 64)].concat();
    let whole = |bytes: &[u8]| ReplyEvent::Reply(Bytes::copy_from_slice(bytes));
    assert_eq!(
        parse_stream(&stream, 13, 1).unwrap(),
        [whole(&record), whole(b""), whole(&refused)]
    );
}

proptest! {
    #[test]
    fn results_do_not_depend_on_fragments_or_reads(
        frames in proptest::collection::vec(proptest::option::of((0u8..9, 0usize..40_000)), 0..6),
        fragment_len in 1usize..60_000,
        read_len in 1usize..70_000,
    ) {
        let frames: Vec<_> = frames.into_iter().map(|frame| frame.map(|(byte, len)| vec![byte; len])).collect();
        let record = reply(&frames);
        let fragment_len = fragment_len.max(record.len() / 4000 + 1);
        let stream = [marked(&record, fragment_len), marked(&record, usize::MAX)].concat();
        let twice: Vec<_> = expected(&frames).into_iter().chain(expected(&frames)).collect();
        prop_assert_eq!(parse_stream(&stream, read_len, frames.len()).unwrap(), twice);
    }

    #[test]
    fn agrees_with_whole_reply_decoder(
        lens in proptest::collection::vec(proptest::option::of(0usize..20), 1..5),
        at in any::<proptest::sample::Index>(),
        byte: u8,
    ) {
        let frames: Vec<_> = lens.iter().map(|len| len.map(|len| vec![3; len])).collect();
        let mut record = reply(&frames);
        // Spares the RPC header.
        let at = HEAD_LEN - 4 + at.index(record.len() - HEAD_LEN + 4);
        record[at] = byte;
        let found = parse_stream(&marked(&record, usize::MAX), 1000, frames.len()).unwrap();
        match GetDataResult::from_xdr(&record[HEAD_LEN - 4..]) {
            Ok(whole) if whole.frames.len() == frames.len() => {
                let whole: Vec<_> = whole.frames.iter().map(|frame| frame.map(<[u8]>::to_vec)).collect();
                prop_assert_eq!(found, expected(&whole));
            }
            _ => prop_assert!(matches!(found.last(), Some(ReplyEvent::Garbage(XID, _))), "{:?}", found),
        }
    }

    #[test]
    fn garbage_never_panics(stream: Vec<u8>, read_len in 1usize..9) {
        let _ = parse_stream(&stream, read_len, 2);
    }
}
