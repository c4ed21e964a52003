//! The log of a trail: cut and replaced trails, kills, proofs.

use vouch_audit::keys::Ratchet;
use vouch_audit::trail::{CHECKPOINT_FILE, KEY_FILE, SystemDisk, create_key, read_key, seals_from};
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::key::{Algorithm, Signer, VerifierKey};

use crate::audit_commands::{SECOND, open, put};
use crate::prelude::*;
use crate::transparency_log::build_go_reader;
use crate::witnesses::server::{HonestWitness, WitnessServer};

fn now() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    since.as_secs()
}

fn witness(seed: u8) -> Signer {
    let name = format!("w{seed}.example");
    Signer::from_seed(&name, Algorithm::CosignatureEd25519, &[seed; 32]).expect("a key")
}

fn write_policy(site: &TestSite, name: &str, seed: u8) {
    let keys = std::fs::read_to_string(site.path("trail/log.pub")).expect("keygen writes it");
    let log = keys.lines().next().expect("a key");
    let key = witness(seed).verifier().to_text();
    site.write(name, format!("log {log}\nwitness w {key}\nquorum w\n"));
}

/// A trail with records, some of which are sealed.
fn with_trail() -> TestSite {
    let site = TestSite::new();
    site.run_ok("audit keygen trail");
    write_policy(&site, "policy", 1);
    add_records(&site, "trail", 60);
    site
}

fn add_records(site: &TestSite, trail: &str, count: u64) {
    let mut log = open(&site.path(trail));
    for number in 0..count {
        put(&mut log, "alice@EXAMPLE.ORG", READ, &format!("/srv/{number}"), "", 0);
    }
    log.close(2_000_000 * SECOND).expect("the trail closes");
}

fn log(site: &TestSite) -> Value {
    serde_json::from_str(&site.run_ok("audit log --once --json trail")).expect("JSON")
}

/// As the witness of the policy does.
fn cosign(site: &TestSite, time: u64) {
    let path = site.path("trail/log/checkpoint");
    let mut head = SignedCheckpoint::parse(&std::fs::read(&path).expect("a head")).expect("a head");
    head.note_mut().sign(&witness(1), time).expect("a cosignature");
    std::fs::write(&path, head.to_text()).expect("a file");
}

fn seal_count(site: &TestSite, trail: &str) -> u64 {
    seals_from(&site.path(trail), 0, usize::MAX).expect("a trail").len() as u64
}

/// Exit code and output of a verification by the policy, whose witness is not asked.
fn verify(site: &TestSite, more: &str) -> (Option<i32>, String) {
    verify_online(site, &format!("--offline {more}"))
}

fn verify_online(site: &TestSite, more: &str) -> (Option<i32>, String) {
    let output = site.run(&format!("audit verify --policy policy {more} trail"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn log_has_each_seal_once_and_witnesses_show_the_end() {
    let site = with_trail();
    let first = log(&site);
    assert_eq!(first["entries"], seal_count(&site, "trail"));
    assert!(first["entries"].as_u64() > Some(3), "{first}");
    assert_eq!(log(&site)["new_entries"], 0);
    add_records(&site, "trail", 30);
    let second = log(&site);
    assert_eq!(second["entries"], seal_count(&site, "trail"));
    let (code, text) = verify(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "no witness do not suffice");
    cosign(&site, now());
    let (code, text) = verify(&site, "");
    assert_eq!(code, Some(0), "{text}");
    assert_contains!(text, "sound", "witnessed at");
    // A trail may be ahead of its log: the writer was killed, or the log's next look is to come.
    add_records(&site, "trail", 30);
    assert_eq!(verify(&site, "").0, Some(0));
}

/// By somebody with a backup of everything but the log.
#[test]
fn trail_that_was_cut_back_is_found_by_its_log() {
    let site = with_trail();
    site.run_tool("cp", &["-r", "trail", "backup"]);
    add_records(&site, "trail", 60);
    log(&site);
    cosign(&site, now());
    assert_eq!(verify(&site, "").0, Some(0));
    site.run_tool("mv", &["trail/log", "log"]);
    site.run_tool("rm", &["-r", "trail"]);
    site.run_tool("mv", &["backup", "trail"]);
    // Nothing in the trail itself shows it.
    site.run_ok("audit verify trail");
    let (code, text) = verify(&site, "--log log");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "was cut back");
    let (code, text) = verify(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "log of the trail is missing");
}

/// The log goes back too: its old head has old cosignatures alone, since a witness cosigns no
/// shorter log.
#[test]
fn trail_and_log_that_were_cut_back_together_have_old_cosignatures() {
    let site = with_trail();
    log(&site);
    cosign(&site, now() - 2 * 86_400);
    let (code, text) = verify(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "cosigned last at", "may have been cut back");
    assert_eq!(verify(&site, "--witnessed-within 3d").0, Some(0));
    cosign(&site, now() + 3_600);
    assert_contains!(verify(&site, "").1, "1 fault");
}

#[test]
fn trail_that_was_replaced_is_found_by_its_log() {
    let site = with_trail();
    log(&site);
    cosign(&site, now());
    let trail_id = read_key(&site.path("trail").join(KEY_FILE)).expect("a key").trail();
    for (id, said) in
        [([9; 16], "another trail"), (trail_id, "differs from the one that was logged")]
    {
        let segments = vouch_audit::trail::segments(&site.path("trail")).expect("a trail");
        segments.iter().for_each(|file| std::fs::remove_file(&file.path).expect("a segment"));
        for name in [KEY_FILE, CHECKPOINT_FILE] {
            std::fs::remove_file(site.path("trail").join(name)).expect("a file");
        }
        let key = Ratchet::new(id, &[5; 32]);
        create_key(&SystemDisk, &site.path("trail").join(KEY_FILE), &key).expect("a key");
        add_records(&site, "trail", 200);
        site.run_ok("audit verify trail");
        let (code, text) = verify(&site, "");
        assert_eq!(code, Some(1), "{text}");
        assert_contains!(text, said);
        // Nor does the log take it for the same trail.
        match id == trail_id {
            true => site.expect_err(1, "audit log --once trail", &["does not follow"]),
            false => site.expect_err(3, "audit log --once trail", &["--add-trail"]),
        }
    }
    site.run_tool("rm", &["-r", "trail"]);
    let site = with_trail();
    log(&site);
    let public = site.run_ok("audit keygen second");
    add_records(&site, "second", 20);
    site.run_ok("audit log --once --add-trail --log trail/log --log-key trail/log.key second");
    cosign(&site, now());
    // The other trail is in the log now, and only the first key tells them apart.
    assert_contains!(verify(&site, "").1, "give --public");
    site.write("second.pub", public);
    let line = "audit verify --policy policy --offline --log trail/log --public second.pub second";
    site.run_ok(line);
}

#[test]
fn killed_logger_leaves_no_gap() {
    let site = with_trail();
    let mut size = 0;
    for round in 0..15u64 {
        add_records(&site, "trail", 10);
        let mut command = site.command("audit log --interval 1s trail");
        let mut logger = KillOnDrop(command.spawn().expect("the binary starts"));
        std::thread::sleep(Duration::from_millis(8 * round));
        logger.kill().expect("it runs");
        logger.wait().expect("a child");
        let head = std::fs::read(site.path("trail/log/checkpoint"));
        let now = head.map_or(0, |bytes| {
            SignedCheckpoint::parse(&bytes).expect("a whole head").checkpoint().size
        });
        assert!(now >= size, "{now} after {size}");
        size = now;
    }
    assert_eq!(log(&site)["entries"], seal_count(&site, "trail"));
    cosign(&site, now());
    assert_eq!(verify(&site, "").0, Some(0));
}

#[test]
fn trails_of_a_site_share_a_log() {
    let site = TestSite::new();
    let (first, second) = (site.run_ok("audit keygen trail"), site.run_ok("audit keygen second"));
    write_policy(&site, "policy", 1);
    add_records(&site, "trail", 60);
    add_records(&site, "second", 20);
    let row: Value =
        serde_json::from_str(&site.run_ok("audit log --once --json trail second")).expect("JSON");
    assert_eq!(row["entries"], seal_count(&site, "trail") + seal_count(&site, "second"));
    cosign(&site, now());
    for (trail, public) in [("trail", first), ("second", second)] {
        let public = public.trim();
        let line = format!(
            "audit verify --policy policy --offline --log trail/log --public {public} {trail}"
        );
        site.run_ok(&line);
    }
    site.expect_err(
        3,
        "audit log --once --log trail/log --log-key second/log.key second",
        &["origin"],
    );
}

/// A policy whose witness has this answer.
fn write_policy_with_url(site: &TestSite, url: &str) {
    write_policy(site, "policy", 1);
    let text = std::fs::read_to_string(site.path("policy")).expect("a policy");
    site.write("policy", text.replace("\nquorum", &format!(" {url}\nquorum")));
}

fn with_witness() -> (TestSite, WitnessServer) {
    let site = with_trail();
    let keys = std::fs::read_to_string(site.path("trail/log.pub")).expect("keygen writes it");
    let key = VerifierKey::parse(keys.lines().next().expect("a key")).expect("a key");
    let server = WitnessServer::honest(HonestWitness::new(1, key, now), Duration::ZERO);
    write_policy_with_url(&site, &server.url);
    (site, server)
}

/// Within the time that cosignatures are fresh, only the witnesses can tell.
#[test]
fn witnesses_find_trail_and_log_that_were_restored_from_a_backup() {
    let (site, _witness) = with_witness();
    site.run_ok("audit log --once --policy policy trail");
    let (code, text) = verify_online(&site, "");
    assert_eq!(code, Some(0), "{text}");
    site.run_tool("cp", &["-r", "trail", "backup"]);
    let old = seal_count(&site, "trail");
    add_records(&site, "trail", 60);
    site.run_ok("audit log --once --policy policy trail");
    assert_eq!(verify_online(&site, "").0, Some(0));
    let new = seal_count(&site, "trail");
    site.run_tool("rm", &["-r", "trail"]);
    site.run_tool("mv", &["backup", "trail"]);
    let (code, text) = verify_online(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, &format!("it has cosigned {new} entries, and this log has {old}"));
    // The limit that the documents state.
    assert_eq!(verify(&site, "").0, Some(0));
    // The witness was not moved.
    assert_eq!(verify_online(&site, "").0, Some(1));
}

#[test]
fn trail_is_not_sound_if_its_witnesses_do_not_confirm_it_now() {
    let (site, server) = with_witness();
    site.run_ok("audit log --once --policy policy trail");
    let head = std::fs::read(site.path("trail/log/checkpoint")).expect("a head");
    let head = SignedCheckpoint::parse(&head).expect("a head");
    drop(server);
    let closed = format!("http://127.0.0.1:{}", free_port());
    write_policy_with_url(&site, &closed);
    let (code, text) = verify_online(&site, "--witness-wait 1s");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "may have been cut back together", "note: witness w");
    // An answer of an earlier day, replayed.
    let text = head.note().text().to_owned();
    let answer = move |_: &[u8]| {
        let old = witness(1).sign(&text, now() - 86_000).expect("a checkpoint");
        (200, "text/plain", old.line())
    };
    let replayer = WitnessServer::start(answer);
    write_policy_with_url(&site, &replayer.url);
    let (code, text) = verify_online(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "and not of now");
    write_policy(&site, "policy", 1);
    site.expect_err(3, "audit verify --policy policy trail", &["no witness with a URL"]);
}

/// A witness refuses the log that was cut back with its trail and then continued.
#[test]
fn logger_collects_cosignatures_and_a_cut_log_gets_none() {
    let (site, _witness) = with_witness();
    site.run_ok("audit log --once --policy policy trail");
    site.run_tool("cp", &["-r", "trail", "backup"]);
    add_records(&site, "trail", 30);
    site.run_ok("audit log --once --policy policy trail");
    // Again, for the time alone.
    site.run_ok("audit log --once --policy policy trail");
    site.run_tool("rm", &["-r", "trail"]);
    site.run_tool("mv", &["backup", "trail"]);
    add_records(&site, "trail", 80);
    site.expect_err(10, "audit log --once --policy policy trail", &["too few cosignatures"]);
    let (code, text) = verify(&site, "");
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "no witness do not suffice");
}

fn prove(site: &TestSite) {
    log(site);
    cosign(site, now());
    site.run_ok("audit prove --tlog --policy policy --out 7.tlog-proof trail 7");
}

#[test]
fn proof_of_a_record_holds_by_the_policy_alone() {
    let site = with_trail();
    site.run_err(5, "audit prove --tlog --policy policy --out 7.tlog-proof trail 7");
    prove(&site);
    let shown = site.run_ok("audit check-proof --policy policy 7.tlog-proof");
    assert_contains!(shown, "/srv/6");
    write_policy(&site, "other", 2);
    site.run_err(5, "audit check-proof --policy other 7.tlog-proof");
    let text = std::fs::read_to_string(site.path("7.tlog-proof")).expect("a proof");
    assert!(text.starts_with("c2sp.org/tlog-proof@v1\nextra "));
    let wrong = text.replacen("index ", "index 1", 1);
    site.write("wrong", wrong);
    site.run_err(5, "audit check-proof --policy policy wrong");
    assert_eq!(std::fs::read(site.path("7.tlog-proof.entry")).expect("an entry").len(), 16 + 184);
    assert_eq!(site.run("audit prove --tlog --out again trail 7").status.code(), Some(2));
}

#[test]
#[ignore = "needs Go"]
fn go_tools_read_the_log_of_a_trail_and_check_proofs() {
    let site = with_trail();
    let reader = build_go_reader(&site);
    prove(&site);
    let read = succeed(Command::new(&reader).arg("read").arg(site.path("trail/log")));
    assert_contains!(read, "entries of vouch/v1/trails/");
    let files = ["policy", "7.tlog-proof", "7.tlog-proof.entry"].map(|name| site.path(name));
    assert_contains!(succeed(Command::new(reader).arg("prove").args(files)), "proven");
}
