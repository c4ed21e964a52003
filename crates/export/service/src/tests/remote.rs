//! Remote file systems that stall.

use vouch_nfs4::op::{Args, GetattrArgs, ReaddirArgs};
use vouch_nfs4::{Bitmap, Cookie, Verifier};
use vouch_vfs::memory::Call;

use super::blocking::{Gate, Slow, answered, compound, good, has_nothing, lookup, make, until};
use super::*;

const TYPE: Bitmap = Bitmap::of(&[1]);

/// With one thread for disks. A closed gate stalls the remote file system.
fn start(near: &MemoryFs, gate: &Gate) -> Running {
    let (far, passed) = (MemoryFs::new(), gate.clone());
    far.set_remote();
    far.set_fault(move |_, _| {
        passed.pass();
        None
    });
    let near = near.clone();
    let open = move |source: &exports::syntax::Source,
                     _: &exports::syntax::Options|
          -> std::io::Result<Arc<dyn vouch_vfs::FileSystem>> {
        Ok(Arc::new(if source.to_string() == "/far" { far.clone() } else { near.clone() }))
    };
    let change = |config: &mut ExportConfig| {
        let ExportList::Files(lists) = &config.exports else { panic!("it is of files") };
        let options = "*(rw,insecure,no_root_squash)";
        std::fs::write(&lists[0], format!("/data {options}\n/far {options}\n")).unwrap();
        (config.threads, config.limits.waiting_threads_max) = (Some(1), 1);
    };
    Running::start_in(
        change,
        SystemHooks { names: Arc::new(Slow::default()), ..SystemHooks::system(Box::new(open)) },
    )
}

fn type_of(xid: u32, path: &[&str]) -> Vec<u8> {
    let mut ops = vec![Args::Putrootfh];
    ops.extend(path.iter().map(|name| lookup(name)));
    ops.push(Args::Getattr(GetattrArgs { wanted: TYPE }));
    compound(xid, &ops)
}

fn list(xid: u32, path: &[&str]) -> Vec<u8> {
    let readdir = ReaddirArgs {
        cookie: Cookie(0),
        verifier: Verifier([0; 8]),
        dir_count: 4096,
        max_count: 4096,
        wanted: TYPE,
    };
    let mut ops = vec![Args::Putrootfh];
    ops.extend(path.iter().map(|name| lookup(name)));
    ops.push(Args::Readdir(readdir));
    compound(xid, &ops)
}

#[test]
fn stalled_remote_file_system_leaves_threads_for_disks() {
    let (near, gate) = (MemoryFs::new(), Gate::default());
    near.set_slow_sync(true);
    let server = start(&near, &gate);
    let (mut client, mut same) = (server.connect(), server.connect());
    gate.set_closed(true);
    const STALLED: u32 = 40;
    (0..STALLED - 1).for_each(|number| client.write_all(&type_of(number, &["far"])).unwrap());
    client.write_all(&list(STALLED - 1, &[])).unwrap();
    until("not all calls wait", || {
        server.status().waiting_calls == STALLED as usize && gate.waiting().0 == 1
    });
    for number in 0..5 {
        assert_eq!(
            good(&exchange(&mut same, &make(number, &format!("made-{number}")))),
            Some(number)
        );
        near.evict_caches();
        assert_eq!(good(&exchange(&mut same, &type_of(99, &["data", "made-0"]))), Some(99));
    }
    assert!(has_nothing(&client));
    gate.set_closed(false);
    let mut all: Vec<_> = (0..STALLED).map(|_| answered(&mut client).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..STALLED).collect::<Vec<_>>());
    until("calls still wait", || server.status().waiting_calls == 0);
}

/// As of `.snapshot` with thousands of snapshots.
#[test]
fn slow_listings_leave_threads_for_other_calls() {
    let (near, gate) = (MemoryFs::new(), Gate::default());
    near.set_slow_sync(true);
    near.set_slow_listings();
    let passed = gate.clone();
    near.set_fault(move |call, _| {
        if call == Call::ReadDirectory {
            passed.pass();
        }
        None
    });
    let server = start(&near, &Gate::default());
    let (mut client, mut same) = (server.connect(), server.connect());
    gate.set_closed(true);
    (0..5).for_each(|number| client.write_all(&list(number, &["data"])).unwrap());
    until("not all listings wait", || server.status().waiting_calls == 5 && gate.waiting().0 == 1);
    assert_eq!(good(&exchange(&mut same, &make(7, "made"))), Some(7));
    near.evict_caches();
    assert_eq!(good(&exchange(&mut same, &type_of(8, &["data", "made"]))), Some(8));
    assert!(has_nothing(&client));
    gate.set_closed(false);
    let mut all: Vec<_> = (0..5).map(|_| answered(&mut client).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
}
