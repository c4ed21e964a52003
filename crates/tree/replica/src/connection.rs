//! Bytes in, pieces and time-outs out. No I/O and no clock; `worker` drives it.

use std::time::{Duration, Instant};

use vouch_oncrpc::RecordError;

use super::limits::{
    IDLE_CROWDED_MAX, Limits, OUTPUT_LEN_MAX, OWN_LEN_MAX, PIECES_MAX, STALL_LEN_MIN,
};
use super::output::Output;
use super::request::{Incoming, RequestReader};

pub(super) trait Service {
    type File: Clone + PartialEq;

    /// `fetched`: the wait after [`After::Again`] is over.
    fn answer(
        &self,
        request: &Incoming<'_>,
        fetched: Option<Fetched>,
        output: &mut Output<Self::File>,
    ) -> Result<After, Fault>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Next,
    Close,
    /// The same request, after [`Connection::wake`].
    Again,
}

impl After {
    pub(super) const fn of(is_persistent: bool) -> Self {
        if is_persistent { Self::Next } else { Self::Close }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    Complete,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    BadRequest,
    Idle,
    SlowRequest,
    SlowReader,
    /// Clear text on a port that takes TLS only.
    ClearText,
}

impl From<RecordError> for Fault {
    fn from(_: RecordError) -> Self {
        Self::BadRequest
    }
}

#[derive(Debug)]
pub(super) struct Connection<F> {
    reader: RequestReader,
    /// Only peers that send faster than they read fill it.
    undecoded: Vec<u8>,
    output: Output<F>,
    waiting: Option<(Incoming<'static>, Option<Fetched>)>,
    is_ending: bool,
    phase: Phase,
    since: Instant,
    taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Request,
    Wait,
    Reply,
}

impl<F: Clone + PartialEq> Connection<F> {
    pub(super) fn new(now: Instant) -> Self {
        let (reader, output) = (RequestReader::Unknown, Output::new());
        let (undecoded, waiting, is_ending) = (Vec::new(), None, false);
        Self {
            reader,
            undecoded,
            output,
            waiting,
            is_ending,
            phase: Phase::Idle,
            since: now,
            taken: 0,
        }
    }

    pub(super) const fn output(&self) -> &Output<F> {
        &self.output
    }

    /// No more is read until output is sent.
    pub(super) const fn has_undecoded(&self) -> bool {
        !self.undecoded.is_empty() || matches!(self.waiting, Some((_, Some(_))))
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.waiting, Some((_, None)))
    }

    /// [`Connection::resume`] then answers the request.
    pub(super) fn wake(&mut self, how: Fetched) {
        if let Some((_, fetched)) = &mut self.waiting {
            *fetched = Some(how);
        }
    }

    pub(super) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Stops when the output is full; [`Connection::resume`] continues.
    pub(super) fn feed<S: Service<File = F>>(
        &mut self,
        mut input: &[u8],
        service: &S,
    ) -> Result<(), Fault> {
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

    fn decode<S: Service<File = F>>(
        &mut self,
        input: &mut &[u8],
        service: &S,
    ) -> Result<(), Fault> {
        while !self.is_full() && !self.is_ending && !self.is_waiting() {
            let (request, fetched) = match self.waiting.take() {
                Some(waited) => waited,
                None => match self.reader.next(input)? {
                    Some(request) => (request, None),
                    None => break,
                },
            };
            match service.answer(&request, fetched, &mut self.output)? {
                After::Next => {}
                After::Close => {
                    self.is_ending = true;
                    *input = &[];
                }
                After::Again => self.waiting = Some((request.into_owned(), None)),
            }
            self.phase = Phase::Idle;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let output = &self.output;
        output.pieces().len() >= PIECES_MAX
            || output.len() >= OUTPUT_LEN_MAX
            || output.own_len() >= OWN_LEN_MAX
    }

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
            (true, _) if self.waiting.is_some() => Phase::Wait,
            (true, false) => Phase::Request,
            (true, true) => Phase::Idle,
        };
        if phase != self.phase || phase == Phase::Idle {
            (self.phase, self.since, self.taken) = (phase, now, 0);
        }
    }

    /// Returns a passed time-out.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, crowded: bool) -> Option<Fault> {
        let silence = now.saturating_duration_since(self.since);
        let past = |max: Duration| silence >= max;
        match self.phase {
            Phase::Idle if past(limits.idle_max) || (crowded && past(IDLE_CROWDED_MAX)) => {
                Some(Fault::Idle)
            }
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

    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, |(request, _)| request.held_len());
        self.reader.held_len() + waiting + self.undecoded.capacity() + self.output.held_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CONNECTION_LEN_MAX, READ_LEN_MAX, REQUEST_LEN_MAX};
    use crate::output::Span;
    use vouch_oncrpc::record_mark;

    struct Pieces;

    impl Service for Pieces {
        type File = u8;

        fn answer(
            &self,
            request: &Incoming<'_>,
            fetched: Option<Fetched>,
            output: &mut Output<u8>,
        ) -> Result<After, Fault> {
            let record = match request {
                Incoming::Rpc(record) => record,
                Incoming::Http(head) if head.starts_with(b"GET /wait") && fetched.is_none() => {
                    return Ok(After::Again);
                }
                Incoming::Http(head) => {
                    output.push_bytes(&[0; 400]);
                    return Ok(After::of(!head.starts_with(b"GET /last")));
                }
            };
            if record.is_empty() {
                return Err(Fault::BadRequest);
            }
            for i in 0..record.len() as u64 {
                output.push_bytes(&[0; 4]);
                output.push_span(Span { file: 1, offset: i * 1000, len: 100 });
            }
            Ok(After::Next)
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
        // Each record adds 128 pieces, like the largest GETDATA.
        for (request, all_waits) in
            [(request(64), true), (b"GET /a HTTP/1.1\r\n\r\n".to_vec(), false)]
        {
            let mut connection = Connection::new(Instant::now());
            let input = request.repeat(READ_LEN_MAX / request.len() + 1);
            connection.feed(&input[..READ_LEN_MAX], &Pieces).unwrap();
            assert!(connection.has_undecoded() || !all_waits);
            let held = connection.held_len() + size_of::<Connection<u8>>();
            assert!(held <= CONNECTION_LEN_MAX, "{held}");
        }
        let mut connection = Connection::new(Instant::now());
        connection.feed(&request(5), &Pieces).unwrap();
        connection.sent(connection.output().len());
        assert_eq!(connection.held_len(), 0, "an idle connection");
    }

    #[test]
    fn long_and_foreign_requests_are_faults() {
        for stream in [&record_mark(REQUEST_LEN_MAX + 1)[..], &request(0), b"\x16\x03\x01"] {
            assert_eq!(
                Connection::new(Instant::now()).feed(stream, &Pieces),
                Err(Fault::BadRequest),
                "{stream:?}"
            );
        }
    }

    #[test]
    fn requests_after_the_last_are_not_answered() {
        let mut connection = Connection::new(Instant::now());
        connection
            .feed(
                b"GET /a HTTP/1.1\r\n\r\nGET /last HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
                &Pieces,
            )
            .unwrap();
        assert_eq!(
            (connection.output().len(), connection.is_ending(), connection.has_undecoded()),
            (800, true, false)
        );
    }

    #[test]
    fn waiting_request_keeps_its_place_and_has_no_time_out() {
        let now = Instant::now();
        let mut connection = Connection::new(now);
        connection.feed(b"GET /wait HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\n", &Pieces).unwrap();
        assert!(connection.is_waiting() && connection.output().is_empty());
        connection.rest(now);
        assert_eq!(connection.expire(now + limits().idle_max, &limits(), true), None);
        connection.resume(&Pieces).unwrap();
        assert!(connection.is_waiting() && connection.output().is_empty());
        for how in [Fetched::Failed, Fetched::Complete] {
            connection.wake(how);
        }
        connection.resume(&Pieces).unwrap();
        assert_eq!(
            (connection.output().len(), connection.is_waiting(), connection.has_undecoded()),
            (800, false, false)
        );
    }

    #[test]
    fn idle_connection_closes_in_time_and_earlier_in_crowd() {
        let now = Instant::now();
        let mut connection: Connection<u8> = Connection::new(now);
        connection.rest(now);
        assert_eq!(
            connection.expire(now + limits().idle_max - Duration::from_secs(1), &limits(), false),
            None
        );
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
