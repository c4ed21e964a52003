//! Call rate of the pipelined driver: `pipeline_rate [ADDRESS [DEPTH [SECONDS [MINOR]]]]`. Each
//! call is a GETATTR of the root. Without an address, a thread gives prepared replies.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use vouch_nfs4::op::*;
use vouch_nfs4::*;
use vouch_nfs4_client::{Identity, Pipeline, Plain, RecordBuffer};
use vouch_oncrpc::{Accepted, AuthSys, Reply, begin_record, end_record};
use vouch_xdr::{Reader, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = match arguments.next() {
        Some(address) => address.parse()?,
        None => start_stub_server()?,
    };
    let depth: u64 = arguments.next().map_or(Ok(64), |depth| depth.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |seconds| seconds.parse())?;
    let minor: u32 = arguments.next().map_or(Ok(1), |minor| minor.parse())?;
    let identity =
        Identity { slots: depth as u32, ..Identity::new(&b"pipeline_rate"[..], Verifier([1; 8])) };
    let mut pipeline =
        Pipeline::connect(address, minor, 1, &identity, Box::new(Plain::sys(&AuthSys::default())))?;
    let operations = |call: &mut vouch_nfs4_client::CallBuilder, w: &mut Writer| {
        call.op(w, &Args::Putrootfh);
        call.op(w, &Args::Getattr(GetattrArgs { wanted: Bitmap::of(&[1, 3, 4, 20]) }));
    };
    let mut refused = 0u64;
    while pipeline.submitter().in_flight() < depth as usize
        && pipeline.submitter().submit(0, operations)?
    {}
    let (start, cpu, mut calls) = (Instant::now(), thread_cpu(), 0u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        calls += pipeline.poll(Some(Duration::from_secs(5)), |submitter, _, outcome| {
            let read = outcome.and_then(|mut body| {
                body.skip(&[Op::PUTROOTFH])?;
                body.next_ok().map(drop)
            });
            refused += u64::from(read.is_err());
            submitter.submit(0, operations).expect("the session is valid");
        })? as u64;
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), thread_cpu() - cpu);
    println!(
        "{:.0} calls/s, {:.2} us of CPU per call, depth {depth}, {refused} refused",
        calls as f64 / wall,
        cpu * 1e6 / calls as f64
    );
    Ok(())
}

fn thread_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Decodes only the operations of this program.
fn start_stub_server() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut input = RecordBuffer::new(1 << 20);
        let mut out = Writer::new();
        loop {
            if input.fill(&mut stream)? == 0 {
                return Ok(());
            }
            for record in input.take().unwrap_or_default() {
                answer(record, &mut out);
            }
            stream.write_all(out.as_bytes())?;
            out.truncate(0);
        }
    });
    Ok(address)
}

fn answer(record: &[u8], out: &mut Writer) {
    let call = vouch_oncrpc::Call::decode(record).expect("a valid call of this program");
    let mut r = Reader::new(call.args);
    let head = CompoundHead::decode(&mut r).expect("a valid call of this program");
    let start = begin_record(out);
    Reply::accepted(call.xid, Accepted::Success(&[])).encode(out);
    let reply = ReplyWriter::begin(out, b"");
    for _ in 0..head.count {
        match Args::decode(head.minor, &mut r).expect("a valid call of this program") {
            Args::Sequence(args) => {
                let (session, seq, slot, highest) =
                    (args.session, args.seq, args.slot, SlotId(1023));
                let ok = SequenceOk {
                    session,
                    seq,
                    slot,
                    highest_slot: highest,
                    target_highest_slot: highest,
                    flags: SequenceFlags(0),
                };
                Results::Sequence(Ok(ok)).encode(out);
            }
            Args::ExchangeId(_) => {
                let (client, seq, flags) = (ClientId(1), CreateSeq(1), ExchangeIdFlags(0));
                let owner = ServerOwner { minor: 0, major: Bytes(b"stub") };
                let (state_protect, impl_id) = (StateProtectReply::None, None);
                let ok = ExchangeIdOk {
                    client,
                    seq,
                    flags,
                    state_protect,
                    server_owner: owner,
                    server_scope: Bytes(b""),
                    impl_id,
                };
                Results::ExchangeId(Ok(ok)).encode(out);
            }
            Args::CreateSession(args) => {
                let (session, flags) = (SessionId([1; 16]), args.flags);
                Results::CreateSession(Ok(CreateSessionOk {
                    session,
                    seq: args.seq,
                    flags,
                    fore: args.fore,
                    back: args.back,
                }))
                .encode(out);
            }
            Args::ReclaimComplete(_) => Results::ReclaimComplete(Ok(())).encode(out),
            Args::Putrootfh => Results::Putrootfh(Ok(())).encode(out),
            Args::Getattr(args) => {
                let kind = Some(attr::FileType::Directory);
                let attributes = Attributes {
                    file_type: kind,
                    change: Some(ChangeId(1)),
                    size: Some(4096),
                    fileid: Some(2),
                    ..Attributes::default()
                };
                GetattrOk::write(out, args.wanted, &attributes);
            }
            other => Results::failure(other.op(), Status::NOTSUPP).encode(out),
        }
    }
    reply.finish(out, Status::OK, head.count);
    end_record(out.bytes_mut(), start, 0);
}
