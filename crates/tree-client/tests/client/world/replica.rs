//! A replica in memory: honest by itself, and with a script of lies.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_tree::protocol::{FsinfoOffer, GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, Procedure};
use vouch_tree::{BlockHandle, HostId};
use vouch_xdr::{Writer, Xdr};

use super::Published;

/// What a replica or the network to it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Flips one bit of each answer with this probability in 256.
    Flip(u8),
    /// Flips one bit within a frame, leaving the rest of the answer well formed.
    FlipFrame,
    /// Cuts frames short.
    Truncate,
    /// Answers frames in another order.
    Swap,
    /// Sends a valid frame that was not asked for.
    WrongHandle,
    /// Says that it lacks what it has.
    Withhold,
    /// Takes calls and never answers.
    Stall,
    /// Announces records of any length.
    Oversize,
    /// Sends noise.
    Garbage,
    /// Stops in the middle of an answer and closes.
    HalfAnswer,
    /// Stops in the middle of an answer and stays.
    HalfStall,
    /// A byte a second.
    Drip,
    /// Answers transactions that nobody asked.
    WrongXid,
    /// Sends every answer three times.
    Duplicate,
    /// Fewer results than handles.
    FewResults,
    /// Refuses connections.
    Refuse,
    /// Never finishes connecting.
    Blackhole,
    /// Answers every call with an RPC error.
    Decline,
    /// Says that it has no such tree.
    NoTree,
    /// Closes each connection after one answer.
    OneShot,
}

/// What it offers as the fsinfo, whatever frames it has.
#[derive(Clone, Default)]
pub struct Served {
    pub hostid: Option<HostId>,
    pub signed: Vec<u8>,
    pub statements: Vec<Vec<u8>>,
    pub companions: Vec<Vec<u8>>,
    pub frames: Arc<std::collections::HashMap<BlockHandle, Arc<[u8]>>>,
}

pub struct TestReplica {
    served: Mutex<Served>,
    fault: Mutex<Fault>,
    random: Mutex<u64>,
    pub calls: std::sync::atomic::AtomicU64,
    pub delay: Mutex<Duration>,
}

impl TestReplica {
    pub fn new(published: &Published, fault: Fault, seed: u64) -> Arc<Self> {
        let replica = Arc::new(Self {
            served: Mutex::default(),
            fault: Mutex::new(fault),
            random: Mutex::new(seed | 1),
            calls: std::sync::atomic::AtomicU64::new(0),
            delay: Mutex::default(),
        });
        replica.serve_revision(published);
        replica
    }

    pub fn serve_revision(&self, published: &Published) {
        let mut served = self.served.lock();
        served.hostid = Some(published.fsinfo.hostid);
        served.signed = published.signed.clone();
        served.frames = Arc::clone(&published.frames);
    }

    pub fn alter(&self, change: impl FnOnce(&mut Served)) {
        change(&mut self.served.lock());
    }

    pub fn set_fault(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    pub fn fault(&self) -> Fault {
        *self.fault.lock()
    }

    fn draw(&self) -> u64 {
        let mut state = self.random.lock();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Serves one connection until the client leaves.
    pub async fn run(self: Arc<Self>, mut stream: DuplexStream) {
        let mut records = RecordReader::new(1 << 20);
        let mut buffer = vec![0; 4096];
        loop {
            let Ok(n @ 1..) = stream.read(&mut buffer).await else { return };
            let mut input = &buffer[..n];
            while let Ok(Some(record)) = records.next(&mut input) {
                let record = record.into_owned();
                if self.answer(&record, &mut stream).await.is_none() {
                    return;
                }
            }
        }
    }

    /// `None`: the connection is at its end.
    async fn answer(&self, record: &[u8], stream: &mut DuplexStream) -> Option<()> {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let call = Call::decode(record).ok()?;
        let fault = self.fault();
        let mut bytes = self.reply(&call, fault);
        match fault {
            Fault::Stall => return Some(()),
            Fault::Flip(odds) if self.draw() % 256 < u64::from(odds) => {
                let bit = self.draw() as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Fault::Oversize => bytes = [&0xffff_ff00u32.to_be_bytes()[..], &bytes].concat(),
            Fault::Garbage => bytes = super::noise(self.draw(), 64 + self.draw() as usize % 4096),
            Fault::HalfAnswer => {
                let half = self.draw() as usize % bytes.len();
                let _ = stream.write_all(&bytes[..half]).await;
                return None;
            }
            Fault::HalfStall => {
                bytes.truncate(bytes.len() / 2);
                let _ = stream.write_all(&bytes).await;
                std::future::pending::<()>().await;
            }
            Fault::Drip => {
                for byte in bytes {
                    stream.write_all(&[byte]).await.ok()?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                return Some(());
            }
            Fault::Duplicate => bytes = [&bytes[..], &bytes, &bytes].concat(),
            _ => {}
        }
        stream.write_all(&bytes).await.ok()?;
        (fault != Fault::OneShot).then_some(())
    }

    fn reply(&self, call: &Call<'_>, fault: Fault) -> Vec<u8> {
        let results = match Procedure::from_number(call.procedure) {
            Some(Procedure::GetFsinfo) => self.fsinfo(call.args, fault),
            Some(Procedure::GetData) => self.data(call.args, fault),
            _ => Vec::new(),
        };
        let xid = if fault == Fault::WrongXid { call.xid.wrapping_add(self.draw() as u32 | 1) } else { call.xid };
        let mut w = Writer::new();
        let start = begin_record(&mut w);
        let outcome = if fault == Fault::Decline { Accepted::SystemErr } else { Accepted::Success(&results) };
        Reply::accepted(xid, outcome).encode(&mut w);
        let mut bytes = w.into_bytes();
        end_record(&mut bytes, start, 0);
        bytes
    }

    fn fsinfo(&self, args: &[u8], fault: Fault) -> Vec<u8> {
        let served = self.served.lock();
        let asked = GetFsinfoArgs::from_xdr(args).unwrap();
        if fault == Fault::NoTree || served.hostid != Some(asked.hostid) {
            return GetFsinfoResult::NoTree.to_xdr();
        }
        let (statements, companions) = (served.statements.clone(), served.companions.clone());
        GetFsinfoResult::Ok(FsinfoOffer { signed_fsinfo: served.signed.clone(), statements, companions }).to_xdr()
    }

    fn data(&self, args: &[u8], fault: Fault) -> Vec<u8> {
        let served = self.served.lock().clone();
        let asked = GetDataArgs::from_xdr(args).unwrap();
        let mut frames: Vec<Option<Vec<u8>>> = asked.handles.iter().map(|handle| served.frames.get(handle).map(|f| f.to_vec())).collect();
        match fault {
            Fault::FlipFrame => {
                for frame in frames.iter_mut().flatten() {
                    let bit = self.draw() as usize % (frame.len() * 8);
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
            Fault::Truncate => frames.iter_mut().flatten().for_each(|frame| frame.truncate(frame.len() * 2 / 3)),
            Fault::Swap if frames.len() > 1 => frames.rotate_left(1),
            Fault::Swap | Fault::WrongHandle => {
                let other = served.frames.values().nth(self.draw() as usize % served.frames.len()).map(|f| f.to_vec());
                frames.iter_mut().for_each(|frame| frame.clone_from(&other));
            }
            Fault::Withhold => frames.iter_mut().for_each(|frame| *frame = None),
            Fault::FewResults => drop(frames.pop()),
            _ => {}
        }
        let mut w = Writer::new();
        GetDataResult { frames: frames.iter().map(|f| f.as_deref()).collect() }.encode(&mut w);
        w.into_bytes()
    }
}
