use super::super::reply_parser::RECORD_LEN_MAX;
use super::*;
use tokio::io::DuplexStream;
use vouch_oncrpc::RecordReader;

struct Peer {
    stream: DuplexStream,
    records: RecordReader,
    pending: Vec<u8>,
}

fn connect() -> (StreamConnection, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let peer = Peer { stream: theirs, records: RecordReader::new(1 << 20), pending: Vec::new() };
    (StreamConnection::start(Box::new(ours), u32::MAX - 1), peer)
}

fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    vouch_oncrpc::record(|w| Reply::accepted(xid, Accepted::Success(results)).encode(w))
}

impl Peer {
    async fn call(&mut self) -> (u32, Vec<u8>) {
        loop {
            let held = std::mem::take(&mut self.pending);
            let mut input = &held[..];
            if let Some(record) = self.records.next(&mut input).unwrap() {
                let call = Call::decode(&record).unwrap();
                assert_eq!((call.program, call.version), (PROGRAM, VERSION));
                let found = (call.xid, call.args.to_vec());
                self.pending = input.to_vec();
                return found;
            }
            let mut more = [0; 4096];
            let n = self.stream.read(&mut more).await.unwrap();
            assert!(n > 0, "the client left");
            self.pending = more[..n].to_vec();
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

#[tokio::test]
async fn matches_replies_in_any_order() {
    let (connection, mut peer) = connect();
    let calls: Vec<_> = (0..10u8)
        .map(|n| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.call(Procedure::GetData, &[n; 4]).await })
        })
        .collect();
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(peer.call().await);
    }
    for (xid, args) in asked.iter().rev() {
        peer.send(&reply(*xid, args)).await;
    }
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), vec![n as u8; 4]);
    }
}

fn begin_call(connection: &StreamConnection) -> tokio::task::JoinHandle<CallResult> {
    let connection = connection.clone();
    tokio::spawn(async move { connection.call(Procedure::Null, &[]).await })
}

#[tokio::test]
async fn ignores_reply_to_abandoned_call() {
    let (connection, mut peer) = connect();
    assert!(
        timeout(Duration::from_millis(20), connection.call(Procedure::Null, &[])).await.is_err()
    );
    let (late, _) = peer.call().await;
    peer.send(&reply(late, &[1; 4])).await;
    let next = begin_call(&connection);
    let (xid, _) = peer.call().await;
    peer.send(&reply(xid, &[2; 4])).await;
    assert_eq!(next.await.unwrap().unwrap(), vec![2; 4]);
}

#[tokio::test]
async fn reply_to_unknown_call_or_oversized_record_closes_connection() {
    for is_unknown in [true, false] {
        let (connection, mut peer) = connect();
        let call = begin_call(&connection);
        let (xid, _) = peer.call().await;
        let oversized = ((RECORD_LEN_MAX as u32 + 1) | (1 << 31)).to_be_bytes().to_vec();
        peer.send(&if is_unknown { reply(xid.wrapping_add(1), &[]) } else { oversized }).await;
        assert!(matches!(call.await.unwrap(), Err(CallFailure::Garbage(_))));
        assert!(!connection.is_open() && connection.call(Procedure::Null, &[]).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn silence_closes_connection_with_calls_in_flight_only() {
    let (connection, mut peer) = connect();
    tokio::time::sleep(SILENCE_MAX * 5).await;
    assert!(connection.is_open());
    let begun = Instant::now();
    let outcome = connection.call(Procedure::Null, &[]).await;
    assert!(matches!(outcome, Err(CallFailure::Closed(_))));
    assert!((SILENCE_MAX..=SILENCE_MAX * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    peer.call().await;
}

#[tokio::test]
async fn last_handle_closes_connection() {
    let (connection, mut peer) = connect();
    drop(connection);
    assert_eq!(
        timeout(Duration::from_secs(5), peer.stream.read(&mut [0; 16])).await.unwrap().unwrap(),
        0
    );
}
