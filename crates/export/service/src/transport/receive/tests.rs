use super::*;
use crate::limits::Limits;
use crate::memory_quota::Quotas;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use vouch_oncrpc::record_mark;

const MAX: usize = 300_000;

fn input(quotas: &Quotas) -> Input {
    Input::new(ReceiveCharge::new(quotas.of([127, 0, 0, 1].into())))
}

fn pass(stream: &[u8], piece_len: usize, stop: usize) -> Result<Vec<Vec<u8>>, RecordError> {
    let (here, mut there) = UnixStream::pair().unwrap();
    let quotas = Quotas::with_calls_max(1, || ());
    let (mut input, mut buffers, mut records) = (input(&quotas), Buffers::new(MAX), Vec::new());
    for piece in stream.chunks(piece_len) {
        there.write_all(piece).unwrap();
        loop {
            let (mut batch, more) =
                match input.read(&here, &mut buffers, None, piece_len / 2 + 1).unwrap() {
                    Read::Some { fresh, more, .. } => (fresh.into_batch(VecDeque::new()), more),
                    Read::Empty => break,
                    Read::NoData { .. } | Read::Closed => {
                        unreachable!("the other end is open, and there is no TLS")
                    }
                };
            loop {
                let mut taken = 0;
                while taken < stop {
                    let Some(record) = input.next(&mut batch, MAX)? else { break };
                    records.push(record.bytes.to_vec());
                    taken += 1;
                }
                input.put_back(batch, &mut buffers);
                if taken < stop {
                    break;
                }
                let Some(again) = input.resume() else { break };
                batch = again;
            }
            if !more {
                break;
            }
        }
    }
    drop(input);
    assert_eq!(quotas.held.used(), 0);
    Ok(records)
}

fn stream_of(records: &[Vec<u8>], fragment_len: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    for record in records {
        let mut rest = &record[..];
        while rest.len() > fragment_len {
            let (piece, tail) = rest.split_at(fragment_len);
            stream.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            stream.extend_from_slice(piece);
            rest = tail;
        }
        stream.extend_from_slice(&record_mark(rest.len()));
        stream.extend_from_slice(rest);
    }
    stream
}

#[test]
fn long_records_between_short_ones_arrive_whole() {
    let records: Vec<Vec<u8>> = [10, 250_000, 0, 70_000, 65_536, 3, 300_000, 299_999]
        .iter()
        .map(|&len| (0..len).map(|i| (i * 7 + len) as u8).collect())
        .collect();
    let stream = stream_of(&records, usize::MAX);
    for piece_len in [1_000, 65_000, 150_000] {
        assert!(pass(&stream, piece_len, usize::MAX).unwrap() == records);
    }
    assert!(pass(&stream_of(&records, 50_000), 100_000, 2).unwrap() == records);
}

#[test]
fn too_long_or_endless_records_are_refused() {
    let stream = (0x8000_0000 | (MAX as u32 + 1)).to_be_bytes();
    assert_eq!(pass(&stream, 4, 9), Err(RecordError::TooLong { len: MAX + 1, max: MAX }));
    assert_eq!(pass(&vec![0; 4 * 5000], 20_000, 9), Err(RecordError::TooManyFragments));
}

fn count_records(input: &mut Input, fresh: FreshRead, buffers: &mut Buffers) -> usize {
    let mut batch = fresh.into_batch(VecDeque::new());
    let mut records = 0;
    while input.next(&mut batch, MAX).unwrap().is_some() {
        records += 1;
    }
    input.put_back(batch, buffers);
    records
}

#[test]
fn announced_length_costs_what_has_come() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let (mut input, mut buffers) = (input(&Quotas::with_calls_max(1, || ())), Buffers::new(MAX));
    there.write_all(&[0x80, 0, 0xff, 0, 1, 2]).unwrap();
    let Ok(Read::Some { fresh, .. }) = input.read(&here, &mut buffers, None, usize::MAX) else {
        panic!("something came")
    };
    assert!(fresh.is_incomplete() && !fresh.is_one_record());
    let mut batch = fresh.into_batch(VecDeque::new());
    assert!(input.next(&mut batch, MAX).unwrap().is_none());
    input.put_back(batch, &mut buffers);
    assert!(matches!(&input.held, HeldBytes::Copy(bytes) if bytes.len() == 6));
    assert_eq!(buffers.spare.len(), 1);
}

#[test]
fn unfinished_records_of_one_client_are_not_read_on() {
    let stream = stream_of(&[vec![7; 120_000]], usize::MAX);
    let (begun, whole_len) = (70_000, Buffers::new(MAX).buffer_len());
    let quotas = Quotas::new(&Limits::default(), 10 * whole_len, || ());
    let mut buffers = Buffers::new(MAX);
    let mut all = Vec::new();
    let mut read = |from: u8, sent: &[u8], known: Option<(Input, UnixStream, UnixStream)>| {
        let (mut input, here, mut there) = known.unwrap_or_else(|| {
            let (here, there) = UnixStream::pair().unwrap();
            (Input::new(ReceiveCharge::new(quotas.of([192, 0, 2, from].into()))), here, there)
        });
        there.write_all(sent).unwrap();
        let mut records = 0;
        while input.may_read(&buffers) {
            let Read::Some { fresh, .. } =
                input.read(&here, &mut buffers, None, usize::MAX).unwrap()
            else {
                break;
            };
            records += count_records(&mut input, fresh, &mut buffers);
        }
        ((input, here, there), records)
    };
    for _ in 0..50 {
        all.push(read(1, &stream[..begun], None).0);
    }
    let held = |one: &Input| match &one.held {
        HeldBytes::Nothing => 0,
        HeldBytes::Copy(bytes) => bytes.len(),
        HeldBytes::Buffer { buffer, .. } => buffer.len(),
    };
    let len: usize = all.iter().map(|(input, ..)| held(input)).sum();
    assert!(len <= 8 * whole_len + 42 * READ_LEN_SHORT, "{len}");
    assert!(len <= quotas.held.used());
    assert_eq!(read(2, &stream, None).1, 1);
    let waiting = all.pop().unwrap();
    assert_eq!(read(1, &[], Some(waiting)).1, 0);
    let waiting = all.pop().unwrap();
    all.drain(..2);
    assert_eq!(read(1, &stream[begun..], Some(waiting)).1, 1);
    all.clear();
    assert_eq!(quotas.held.used(), 0);
}

#[test]
fn partial_record_stays_charged_while_another_is_handled() {
    let stream = stream_of(&[vec![7; 120_000]], usize::MAX);
    let quotas = Quotas::with_calls_max(1, || ());
    for begun in [6, 70_000] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (mut input, mut buffers) = (input(&quotas), Buffers::new(MAX));
        let mut whole = |sent: &[u8]| {
            there.write_all(sent).unwrap();
            loop {
                let Read::Some { fresh, .. } =
                    input.read(&here, &mut buffers, None, usize::MAX).unwrap()
                else {
                    panic!("something came")
                };
                if fresh.is_one_record() || fresh.end >= sent.len() {
                    break fresh.into_batch(VecDeque::new());
                }
                input.put_back(fresh.into_batch(VecDeque::new()), &mut buffers);
            }
        };
        let mut first = whole(&stream);
        let second = whole(&stream[..begun]);
        input.put_back(second, &mut buffers);
        let used = quotas.held.used();
        assert!(used >= begun);
        assert_eq!(input.next(&mut first, MAX).unwrap().unwrap().bytes.len(), 120_000);
        input.put_back(first, &mut buffers);
        assert_eq!(quotas.held.used(), used);
        there.write_all(&stream[begun..]).unwrap();
        let mut records = 0;
        while let Read::Some { fresh, .. } = input.read(&here, &mut buffers, None, 7000).unwrap() {
            records += count_records(&mut input, fresh, &mut buffers);
        }
        assert_eq!((records, quotas.held.used()), (1, 0));
    }
}

proptest::proptest! {
    #[test]
    fn records_survive_any_fragments_reads_and_stops(
        records in proptest::collection::vec(proptest::collection::vec(0u8.., 0..40), 0..20),
        fragment_len in 1usize..30,
        piece_len in 1usize..50,
        stop in 1usize..5,
    ) {
        proptest::prop_assert_eq!(pass(&stream_of(&records, fragment_len), piece_len, stop).unwrap(), records);
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>, piece_len in 1usize..9) {
        if let Ok(records) = pass(&bytes, piece_len, 3) {
            proptest::prop_assert!(records.iter().all(|record| record.len() <= MAX));
        }
    }
}
