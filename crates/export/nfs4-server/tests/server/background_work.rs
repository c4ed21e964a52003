use vouch_nfs4_server::JobProgress;

use crate::prelude::*;

const BIG: u64 = 1 << 30;

fn would_block(client: &mut Client<'_>, ops: &[Args<'_>]) -> (bool, Vec<Effect>) {
    let mut all = vec![client.next_sequence(false), Args::Putrootfh, lookup("export")];
    all.extend_from_slice(ops);
    let fixture = client.fixture;
    let mut call = client.begin_call(&all);
    let mut run = call.run(&fixture.server, Blocking::Forbidden);
    let stopped = matches!(run.progress, Progress::Blocked(_));
    if stopped {
        assert!(run.effects.is_empty());
        run = call.run(&fixture.server, Blocking::Allowed);
    }
    let Progress::Done(Some(reply)) = run.progress else { panic!("no reply") };
    expect_ok(results(reply.bytes[28..].to_vec()));
    (stopped, run.effects)
}

fn set_size(client: &mut Client<'_>, name: &str, stateid: Stateid, len: u64) -> bool {
    let attrs = size(len);
    // RFC 8881 §8.2.2.
    let stateid = Stateid { seq: vouch_nfs4::StateSeq(0), ..stateid };
    would_block(
        client,
        &[lookup(name), Args::Setattr(op::SetattrArgs { stateid, attrs: attrs.fattr() })],
    )
    .0
}

#[test]
fn large_truncation_blocks_and_small_one_does_not() {
    let mut client = Client::alone();
    let stateid = client.create("f");
    assert!(!set_size(&mut client, "f", stateid, BIG), "a file that grows gives nothing back");
    assert!(!set_size(&mut client, "f", stateid, BIG - 4096));
    assert!(set_size(&mut client, "f", stateid, 4096));
    assert!(!set_size(&mut client, "f", stateid, 0));
    let truncate = size(0);
    let open_truncating = || {
        open(
            ShareAccess::BOTH,
            OpenHow::Create(CreateHow::Unchecked(truncate.fattr())),
            OpenClaim::Null(Name(b"f")),
        )
    };
    assert!(!would_block(&mut client, &[open_truncating()]).0);
    set_size(&mut client, "f", stateid, BIG);
    assert!(would_block(&mut client, &[open_truncating()]).0);
}

#[test]
fn rename_over_large_file_blocks() {
    let mut client = Client::alone();
    for name in ["a", "b", "c"] {
        client.create(name);
    }
    assert!(!would_block(&mut client, &[Args::Savefh, rename("a", "b")]).0);
    let stateid = client.create("c");
    set_size(&mut client, "c", stateid, BIG);
    assert!(would_block(&mut client, &[Args::Savefh, rename("b", "c")]).0);
    let stateid = client.create("d");
    set_size(&mut client, "d", stateid, BIG);
    assert!(!would_block(&mut client, &[Args::Savefh, rename("d", "e")]).0);
}

#[test]
fn clone_blocks() {
    let mut client = Client::alone();
    let (source, destination) = (client.create("f"), client.create("g"));
    set_size(&mut client, "f", source, 8192);
    let clone = Args::Clone(op::CloneArgs {
        source,
        destination,
        source_offset: 0,
        destination_offset: 0,
        count: 8192,
    });
    let ops = [lookup("f"), Args::Savefh, Args::Putrootfh, lookup("export"), lookup("g"), clone];
    assert!(would_block(&mut client, &ops).0);
}

#[test]
fn last_close_of_removed_large_file_runs_in_background() {
    let (fixture, mut client) = Client::with_fixture();
    let stateid = client.create("small");
    assert_eq!(client.status(&["export"], &[lookup("small"), close(stateid)]), Status::OK);
    assert_eq!(fixture.files.open_count(), 0);

    let stateid = client.create("big");
    set_size(&mut client, "big", stateid, BIG);
    let handle = client.filehandle(&["export", "big"], &[]);
    assert_eq!(client.status(&["export"], &[remove("big")]), Status::OK);
    assert_eq!(fixture.files.open_count(), 1);
    let ops = [putfh(handle), close(stateid)];
    let (stopped, effects) = would_block(&mut client, &ops);
    assert!(!stopped);
    assert_eq!(fixture.files.open_count(), 1, "the serving thread has not closed the file");
    let mut jobs: Vec<_> = effects
        .into_iter()
        .filter_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None })
        .collect();
    let [job] = &mut jobs[..] else { panic!("one background job") };
    assert_eq!(job.address(), fixture.connect().peer().ip(), "charged to the client's address");
    assert!(
        matches!(job.step(&fixture.server, fixture.now()), JobProgress::Done(effects) if effects.is_empty())
    );
    assert_eq!(
        (fixture.files.open_count(), fixture.files.file_count()),
        (0, 2),
        "the root and the small file remain"
    );
}

#[test]
fn many_expired_opens_are_closed_in_background() {
    let (fixture, mut client) = Client::with_fixture();
    let count = 1000;
    for number in 0..count {
        client.create(&number.to_string());
    }
    assert_eq!(fixture.files.open_count(), count);
    let lease = 200_000;
    assert!(fixture.advance(lease).is_empty());
    let effects = fixture.advance(24 * 3600 * 1000 + lease);
    let left = fixture.files.open_count();
    assert!((1..count).contains(&left), "{left}");
    let job = effects
        .into_iter()
        .find_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None });
    let mut job = job.expect("a background job closes the others");
    let mut steps = 0;
    while matches!(job.step(&fixture.server, fixture.now()), JobProgress::More) {
        steps += 1;
    }
    assert!(steps > 0 && fixture.files.open_count() == 0, "{steps}");
}

#[test]
fn search_in_long_file_moves_to_thread_that_may_block() {
    let (fixture, mut client) = Client::with_fixture();
    let stateid = client.create("f");
    let searches = [
        Args::Seek(op::SeekArgs { stateid, offset: 0, what: op::DataContent::Hole }),
        Args::ReadPlus(op::ReadPlusArgs { stateid, offset: 0, count: 4096 }),
    ];
    for (len, blocks) in [(256 << 20, true), (1 << 20, false)] {
        set_size(&mut client, "f", stateid, len);
        for search in &searches {
            let mut call = client.begin(&[lookup("f"), search.clone()]);
            assert_eq!(fixture.blocks(&mut call), blocks, "{len}");
            if blocks {
                assert_eq!(fixture.run_to_status(&mut call, Blocking::Allowed), Status::OK);
            }
        }
    }
}
