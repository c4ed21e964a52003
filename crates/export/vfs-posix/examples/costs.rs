//! Cost of usual calls: `costs DIRECTORY [CALL]` prints nanoseconds a call. Run one call under
//! `strace -c -f` to see the system calls.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use vouch_vfs::{
    Access, AccessOverride, Blocking, Caller, CreateHow, FileSystem, Name, OpenAccess, ReadInto,
    SetAttributes, Stability,
};
use vouch_vfs_posix::{Options, PosixFs, leave_callers};

const BOTH: OpenAccess = OpenAccess { read: true, write: true };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let above = arguments.next().ok_or("costs DIRECTORY [CALL]")?;
    let only = arguments.next();
    let directory = tempfile::TempDir::new_in(Path::new(&above))?;
    let fs = PosixFs::open(directory.path(), Options::default())?;
    let (root, caller, other) =
        (fs.root(), Caller::new(1001, 1001, [5, 6]), Caller::new(1002, 1002, [5, 7]));
    let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    fs.set_attributes(&Caller::root(), &root, None, &mode(0o777))?;
    let name = |bytes: &'static str| Name::new(bytes.as_bytes()).expect("a name");
    let made = fs.create(&caller, &root, name("file"), CreateHow::Guarded, &mode(0o666), BOTH)?;
    let data = vec![7; 1 << 20];
    for piece in 0..16 {
        made.open.write(piece << 20, &data, Stability::Unstable, Blocking::Allowed)?;
    }
    let mut bytes = Vec::with_capacity(1 << 20);
    let measure = |what: &str, count: u32, call: &mut dyn FnMut(u32)| {
        if only.as_ref().is_some_and(|only| only != what) {
            return;
        }
        (0..count / 10 + 1).for_each(&mut *call);
        let start = Instant::now();
        (0..count).for_each(&mut *call);
        println!("{what:16} {:9.0} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(count));
    };
    measure("attributes", 200_000, &mut |_| {
        drop(black_box(fs.attributes(&made.id, Blocking::Forbidden)))
    });
    measure("access", 100_000, &mut |_| {
        drop(black_box(fs.access(
            &caller,
            &made.id,
            Access::READ | Access::MODIFY,
            Blocking::Allowed,
        )))
    });
    measure("access-switching", 100_000, &mut |round| {
        let caller = if round % 2 == 0 { &caller } else { &other };
        drop(black_box(fs.access(
            caller,
            &made.id,
            Access::READ | Access::MODIFY,
            Blocking::Allowed,
        )));
    });
    measure("lookup", 100_000, &mut |_| {
        drop(black_box(fs.lookup(&caller, &root, name("file"), Blocking::Forbidden)))
    });
    measure("read-4k", 200_000, &mut |round| {
        bytes.clear();
        let into = ReadInto { bytes: &mut bytes, span_allowed: true };
        made.open
            .read(u64::from(round % 4000) << 12, 4096, into, Blocking::Forbidden)
            .expect("the file is in memory");
    });
    let mut span = |round: u32, len: usize| {
        bytes.clear();
        let into = ReadInto { bytes: &mut bytes, span_allowed: true };
        black_box(
            made.open
                .read(u64::from(round % 15) << 20, len, into, Blocking::Forbidden)
                .expect("the file is in memory"),
        );
    };
    measure("span-16k", 100_000, &mut |round| span(round, 16 << 10));
    measure("span-1m", 100_000, &mut |round| span(round, 1 << 20));
    measure("write-4k", 200_000, &mut |round| {
        drop(black_box(made.open.write(
            u64::from(round % 4000) << 12,
            &data[..4096],
            Stability::Unstable,
            Blocking::Forbidden,
        )));
    });
    measure("open-close", 100_000, &mut |_| {
        drop(
            fs.open(&caller, &made.id, BOTH, AccessOverride::None, Blocking::Forbidden)
                .expect("opening succeeds"),
        )
    });
    let mut number = 0;
    measure("create-close", 20_000, &mut |_| {
        number += 1;
        let name = format!("new{number}");
        let name = Name::new(name.as_bytes()).expect("a name");
        drop(
            fs.create(&caller, &root, name, CreateHow::Guarded, &mode(0o644), BOTH)
                .expect("creation succeeds"),
        );
    });
    measure("remove", 10_000, &mut |_| {
        let name = format!("new{number}");
        number -= 1;
        let _ = fs.remove(&caller, &root, Name::new(name.as_bytes()).expect("a name"));
    });
    measure("sync-create", 200, &mut |_| {
        number += 1;
        let name = format!("new{number}");
        let name = Name::new(name.as_bytes()).expect("a name");
        let made = fs
            .create(&caller, &root, name, CreateHow::Guarded, &mode(0o644), BOTH)
            .expect("creation succeeds");
        fs.sync_metadata(&[made.id, root], Blocking::Allowed).expect("the sync succeeds");
    });
    let big = fs.make(&caller, &root, name("big"), vouch_vfs::NewNode::Directory, &mode(0o755))?.0;
    if only.is_none() || only.as_deref() == Some("list") {
        for number in 0..100_000 {
            let name = format!("a file of {number}");
            fs.create(
                &caller,
                &big,
                Name::new(name.as_bytes()).expect("a name"),
                CreateHow::Guarded,
                &mode(0o644),
                BOTH,
            )?;
        }
        for with_files in [false, true] {
            let (mut cookie, mut total, start) = (0, 0, Instant::now());
            loop {
                let mut count = 0;
                let done = fs.read_directory(
                    &caller,
                    &big,
                    cookie,
                    with_files,
                    Blocking::Allowed,
                    &mut |entry| {
                        if count == 128 {
                            return ControlFlow::Break(());
                        }
                        count += 1;
                        cookie = entry.cookie;
                        ControlFlow::Continue(())
                    },
                )?;
                total += count;
                if done {
                    break;
                }
            }
            let each = start.elapsed().as_secs_f64() * 1e9 / f64::from(total);
            println!(
                "list, {total} entries, 128 at a time, files {with_files}: {each:.0} ns an entry"
            );
        }
    }
    leave_callers()?;
    Ok(())
}
