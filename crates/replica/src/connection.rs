//! A connection as a state machine: bytes in, pieces to send out, and time-outs. No I/O and no
//! clock; `worker` drives it.

use std::time::{Duration, Instant};

use vouch_oncrpc::{RecordError, RecordReader};

use super::limits::{IDLE_CROWDED_MAX, Limits, OUTPUT_LEN_MAX, PIECES_MAX, REQUEST_LEN_MAX, STALL_LEN_MIN};
use super::output::Output;

pub(super) trait Service {
    type File: Clone + PartialEq;

    fn answer(&self, record: &[u8], output: &mut Output<Self::File>) -> Result<(), NotRpc>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotRpc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    BadRequest,
    Idle,
    /// An incomplete request took too long.
    SlowRequest,
    /// The peer accepted replies too slowly.
    SlowReader,
}

impl From<RecordError> for Fault {
    fn from(_: RecordError) -> Self {
        Self::BadRequest
    }
}

#[derive(Debug)]
pub(super) struct Connection<F> {
    reader: RecordReader,
    /// Input that waits until output is sent; filled only by peers that send faster than they read.
    undecoded: Vec<u8>,
    output: Output<F>,
    phase: Phase,
    since: Instant,
    taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Request,
    Reply,
}

impl<F: Clone + PartialEq> Connection<F> {
    pub(super) fn new(now: Instant) -> Self {
        let (reader, output) = (RecordReader::new(REQUEST_LEN_MAX), Output::new());
        Self { reader, undecoded: Vec::new(), output, phase: Phase::Idle, since: now, taken: 0 }
    }

    pub(super) const fn output(&self) -> &Output<F> {
        &self.output
    }

    /// Whether input waits for output. Otherwise more may be read.
    pub(super) const fn has_undecoded(&self) -> bool {
        !self.undecoded.is_empty()
    }

    /// Answers the requests in new input until the output is full, and keeps the rest for
    /// [`Connection::resume`].
    pub(super) fn feed<S: Service<File = F>>(&mut self, mut input: &[u8], service: &S) -> Result<(), Fault> {
        debug_assert!(self.undecoded.is_empty(), "the first message is decoded first");
        self.decode(&mut input, service)?;
        self.undecoded = input.to_vec();
        Ok(())
    }

    pub(super) fn resume<S: Service<File = F>>(&mut self, service: &S) -> Result<(), Fault> {
        let undecoded = std::mem::take(&mut self.undecoded);
        let mut input = &undecoded[..];
        self.decode(&mut input, service)?;
        self.undecoded = input.to_vec();
        Ok(())
    }

    fn decode<S: Service<File = F>>(&mut self, input: &mut &[u8], service: &S) -> Result<(), Fault> {
        while !self.is_full()
            && let Some(record) = self.reader.next(input)?
        {
            service.answer(&record, &mut self.output).map_err(|NotRpc| Fault::BadRequest)?;
            self.phase = Phase::Idle;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.output.pieces().len() >= PIECES_MAX || self.output.len() >= OUTPUT_LEN_MAX
    }

    /// Notes that `n` bytes of output were sent.
    pub(super) fn sent(&mut self, n: u64) {
        self.output.advance(n);
        self.taken = self.taken.saturating_add(n);
        if self.output.is_empty() {
            self.phase = Phase::Idle;
        }
    }

    /// Ends a turn: time-outs start at `now`.
    pub(super) fn rest(&mut self, now: Instant) {
        let phase = match (self.output.is_empty(), self.reader.at_boundary()) {
            (false, _) => Phase::Reply,
            (true, false) => Phase::Request,
            (true, true) => Phase::Idle,
        };
        if phase != self.phase || phase == Phase::Idle {
            (self.phase, self.since, self.taken) = (phase, now, 0);
        }
    }

    /// Whether a time-out has passed. Called at intervals.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, crowded: bool) -> Option<Fault> {
        let silence = now.saturating_duration_since(self.since);
        let past = |max: Duration| silence >= max;
        match self.phase {
            Phase::Idle if past(limits.idle_max) || (crowded && past(IDLE_CROWDED_MAX)) => Some(Fault::Idle),
            Phase::Request if past(limits.stall_max) => Some(Fault::SlowRequest),
            Phase::Reply if past(limits.stall_max) => {
                if self.taken < STALL_LEN_MIN {
                    return Some(Fault::SlowReader);
                }
                (self.since, self.taken) = (now, 0);
                None
            }
            _ => None,
        }
    }

    /// Memory of this connection beyond its own size, bytes.
    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        self.reader.held_len() + self.undecoded.capacity() + self.output.held_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CONNECTION_LEN_MAX, READ_LEN_MAX};
    use crate::output::Span;
    use vouch_oncrpc::record_mark;

    /// Answers a request of n bytes with n pieces; refuses an empty one.
    struct Pieces;

    impl Service for Pieces {
        type File = u8;

        fn answer(&self, record: &[u8], output: &mut Output<u8>) -> Result<(), NotRpc> {
            if record.is_empty() {
                return Err(NotRpc);
            }
            for i in 0..record.len() as u64 {
                output.push_bytes(&[0; 4]);
                output.push_span(Span { file: 1, offset: i * 1000, len: 100 });
            }
            Ok(())
        }
    }

    fn request(len: usize) -> Vec<u8> {
        [&record_mark(len)[..], &vec![7; len]].concat()
    }

    fn limits() -> Limits {
        Limits::default()
    }

    #[test]
    fn pipelined_requests_wait_for_output_and_are_answered() {
        let now = Instant::now();
        let mut connection = Connection::new(now);
        let input = request(30).repeat(100);
        connection.feed(&input, &Pieces).unwrap();
        let mut sent = 0;
        while !connection.output().is_empty() {
            assert!(connection.output().pieces().len() < PIECES_MAX + 60);
            let n = connection.output().len().min(1000);
            connection.sent(n);
            sent += n;
            connection.resume(&Pieces).unwrap();
        }
        assert!(!connection.has_undecoded());
        assert_eq!(sent, 100 * 30 * 104);
    }

    #[test]
    fn flood_of_requests_stays_within_connection_memory() {
        let mut connection = Connection::new(Instant::now());
        // Each request adds 128 pieces, like the largest GETDATA.
        let input = request(64).repeat(READ_LEN_MAX / 68 + 1);
        connection.feed(&input[..READ_LEN_MAX], &Pieces).unwrap();
        assert!(connection.has_undecoded());
        let held = connection.held_len() + size_of::<Connection<u8>>();
        assert!(held <= CONNECTION_LEN_MAX, "{held}");
    }

    #[test]
    fn idle_connection_holds_no_buffer() {
        let mut connection = Connection::new(Instant::now());
        connection.feed(&request(5), &Pieces).unwrap();
        connection.sent(connection.output().len());
        assert_eq!(connection.held_len(), 0);
    }

    #[test]
    fn request_over_the_limit_is_a_fault() {
        let mut connection = Connection::new(Instant::now());
        assert_eq!(connection.feed(&record_mark(REQUEST_LEN_MAX + 1), &Pieces), Err(Fault::BadRequest));
    }

    #[test]
    fn stream_that_is_not_rpc_is_a_fault() {
        assert_eq!(Connection::new(Instant::now()).feed(&request(0), &Pieces), Err(Fault::BadRequest));
        assert_eq!(Connection::new(Instant::now()).feed(b"GET / HTTP/1.0\r\n\r\n", &Pieces), Err(Fault::BadRequest));
    }

    #[test]
    fn idle_connection_closes_in_time_and_earlier_in_crowd() {
        let now = Instant::now();
        let mut connection: Connection<u8> = Connection::new(now);
        connection.rest(now);
        assert_eq!(connection.expire(now + limits().idle_max - Duration::from_secs(1), &limits(), false), None);
        assert_eq!(connection.expire(now + limits().idle_max, &limits(), false), Some(Fault::Idle));
        assert_eq!(connection.expire(now + IDLE_CROWDED_MAX, &limits(), true), Some(Fault::Idle));
    }

    #[test]
    fn dripping_request_is_closed() {
        let start = Instant::now();
        let mut connection = Connection::new(start);
        let bytes = request(100);
        for (i, byte) in bytes.iter().enumerate() {
            let now = start + Duration::from_secs(i as u64);
            if let Some(fault) = connection.expire(now, &limits(), false) {
                assert_eq!((fault, i), (Fault::SlowRequest, 30));
                return;
            }
            connection.feed(&[*byte], &Pieces).unwrap();
            connection.rest(now);
        }
        panic!("the request was let drip in");
    }

    #[test]
    fn slow_reader_is_closed_and_steady_one_is_not() {
        for (sip, closed) in [(1, true), (STALL_LEN_MIN / 20, false)] {
            let start = Instant::now();
            let mut connection = Connection::new(start);
            connection.output.push_span(Span { file: 1, offset: 0, len: 1 << 40 });
            connection.rest(start);
            let fault = (1..300).find_map(|s| {
                let now = start + Duration::from_secs(s);
                connection.sent(sip);
                connection.rest(now);
                connection.expire(now, &limits(), false)
            });
            assert_eq!(fault, closed.then_some(Fault::SlowReader));
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(reads: Vec<Vec<u8>>) {
            let mut connection = Connection::new(Instant::now());
            for read in reads {
                let fed = if connection.has_undecoded() { connection.resume(&Pieces) } else { connection.feed(&read, &Pieces) };
                if fed.is_err() {
                    break;
                }
                connection.sent(connection.output().len() / 2);
            }
        }
    }
}
