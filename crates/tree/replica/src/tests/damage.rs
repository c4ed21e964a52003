use super::*;

#[test]
fn pack_truncated_while_serving_closes_connection() {
    let made = TestTree::new(1);
    let server = serve(&made);
    let mut client = server.connect();
    let big = made.frames.iter().find(|(_, bytes)| bytes.len() > 100_000).unwrap().0;
    assert!(client.data(hostid(1), vec![big])[0].is_some());
    for entry in std::fs::read_dir(made.path().join("packs")).unwrap() {
        std::fs::OpenOptions::new()
            .write(true)
            .open(entry.unwrap().path())
            .unwrap()
            .set_len(4096)
            .unwrap();
    }
    client.send(&record(&call_to(
        PROGRAM,
        VERSION,
        2,
        &GetDataArgs { hostid: hostid(1), handles: vec![big] }.to_xdr(),
    )));
    assert_eq!(client.receive(), None);
    within(60, "the count", || {
        server.metric("vouch_connections_closed_total{reason=\"database\"}") == 1
    });
}

#[test]
fn truncated_packs_show_in_health() {
    let made = TestTree::new(1);
    made.commit(1, u32::MAX);
    for pack in std::fs::read_dir(made.path().join("packs")).unwrap() {
        std::fs::write(pack.unwrap().path(), "").unwrap();
    }
    let (status, body) = serve(&made).http("/health");
    assert!(status == 503 && body.contains("bytes instead of"), "{body}");
}

#[test]
fn truncated_pack_breaks_tree_until_restored() {
    let (one, two) = (TestTree::new(1), TestTree::new(2));
    one.commit(1, u32::MAX);
    two.commit(1, u32::MAX);
    let server = start(config(vec![one.path(), two.path()]));
    let big =
        |made: &TestTree| made.frames.iter().find(|(_, bytes)| bytes.len() > 100_000).unwrap().0;
    let has =
        |made: &TestTree| server.connect().data(hostid(made.seed), vec![big(made)])[0].is_some();
    let broken = |made: &TestTree| {
        server.metric(&format!("vouch_tree_broken{{tree=\"{}\"}}", hostid(made.seed)))
    };
    assert!(has(&one) && server.http("/health").0 == 200);
    let packs: Vec<_> = listing(&one.path().join("packs"));
    for (path, _) in &packs {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
    }
    let mut client = server.connect();
    client.send(&record(&call_to(
        PROGRAM,
        VERSION,
        2,
        &GetDataArgs { hostid: hostid(1), handles: vec![big(&one)] }.to_xdr(),
    )));
    assert_eq!(client.receive(), None);
    let (status, body) = server.http("/health");
    assert!(
        status == 503
            && body.contains("broken")
            && packs.iter().any(|(path, _)| body.contains(path.to_str().unwrap())),
        "{body}"
    );
    assert_eq!((broken(&one), broken(&two)), (1, 0));
    assert!(has(&two));
    for (path, bytes) in &packs {
        let copy = one.path().join("copy");
        std::fs::write(&copy, bytes).unwrap();
        std::fs::rename(&copy, path).unwrap();
    }
    within(60, "the mended packs are taken up", || server.http("/health").0 == 200);
    assert!(has(&one) && broken(&one) == 0);
}

#[test]
fn scrub_finds_rotten_bytes_and_their_repair() {
    let made = TestTree::new(1);
    made.commit(1, u32::MAX);
    let packs = listing(&made.path().join("packs"));
    let (pack, bytes) = packs.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let mut rotten = bytes.clone();
    rotten[bytes.len() / 2] ^= 1;
    std::fs::write(pack, &rotten).unwrap();
    let server = serve(&made);
    let metric = |name: &str| server.metric(&format!("{name}{{tree=\"{}\"}}", hostid(1)));
    within(60, "a pass of the scrub", || metric("vouch_tree_scrub_passes_total") > 0);
    assert_eq!((metric("vouch_tree_scrub_damaged_frames"), metric("vouch_tree_broken")), (1, 1));
    let (status, body) = server.http("/health");
    assert!(
        status == 503
            && body.contains(pack.to_str().unwrap())
            && body.contains("changed on the disk"),
        "{body}"
    );
    assert!(metric("vouch_tree_scrub_bytes_total") > bytes.len() as u64 / 2);
    drop(server);
    std::fs::write(pack, bytes).unwrap();
    let server = serve(&made);
    within(60, "a pass of the scrub", || {
        server.metric(&format!("vouch_tree_scrub_passes_total{{tree=\"{}\"}}", hostid(1))) > 0
    });
    assert_eq!(server.http("/health").0, 200);
}
