use vouch_tree::TreeName;
use vouch_tree::protocol::{PutStatementArgs, PutStatementResult};
use vouch_tree::statement::{Body, KeyStatement};

use super::*;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

fn revocation(seed: u8, reason: &str) -> Vec<u8> {
    KeyStatement::issue(&key(seed), 5, Body::Revocation { reason: reason.into() }).to_xdr()
}

fn pointer(seed: u8, time: u64) -> Vec<u8> {
    let to = TreeName::new("new.example.org", hostid(9)).unwrap();
    KeyStatement::issue(&key(seed), time, Body::Forwarding { to }).to_xdr()
}

impl Client {
    fn put(&mut self, statement: &[u8]) -> PutStatementResult {
        let args = PutStatementArgs { statement: statement.to_vec() }.to_xdr();
        PutStatementResult::from_xdr(&self.results(3, &args)).unwrap()
    }

    fn statements(&mut self) -> Vec<Vec<u8>> {
        self.fsinfo(hostid(1), false).map_or(Vec::new(), |offer| offer.statements)
    }
}

#[test]
fn valid_statements_are_stored_and_served_after_restart() {
    use PutStatementResult::*;
    let made = TestTree::new(1);
    made.commit(1, u32::MAX);
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("statements");
    let taking =
        || start(ServeConfig { statements: Some(place.clone()), ..config(vec![made.path()]) });
    let server = taking();
    let mut client = server.connect();
    let (first, later, revoked) = (pointer(1, 10), pointer(1, 20), revocation(1, "stolen"));
    let mut forged = later.clone();
    *forged.last_mut().unwrap() ^= 1;
    for (name, statement, expected) in [
        ("a pointer", &first, Stored),
        ("the same again", &first, Known),
        ("a forged one", &forged, Invalid),
        ("no statement", &vec![1, 2, 3], Invalid),
        ("a later pointer", &later, Stored),
        ("an earlier pointer", &first, Known),
        ("one of another key", &revocation(2, ""), NoTree),
        ("a revocation", &revoked, Stored),
        ("a second revocation", &revocation(1, "again"), Known),
        ("a pointer after the revocation", &pointer(1, 99), Known),
    ] {
        assert_eq!(client.put(statement), expected, "{name}");
    }
    assert_eq!(client.statements(), [revoked.clone(), later.clone()]);
    let (status, health) = server.http("/health");
    assert!(
        status == 503 && health.contains("\"revoked\"") && health.contains("stolen"),
        "{health}"
    );
    assert_eq!(server.metric(&format!("vouch_tree_revoked{{tree=\"{}\"}}", hostid(1))), 1);
    assert_eq!(
        server.metric("vouch_requests_total{procedure=\"putstatement\",result=\"refused\"}"),
        3
    );
    drop(server);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 2);
    let server = taking();
    assert_eq!(server.connect().statements(), [revoked, later]);
}

#[test]
fn statements_are_refused_unless_the_replica_takes_them() {
    let made = TestTree::new(1);
    let server = serve(&made);
    assert_eq!(server.connect().put(&revocation(1, "")), PutStatementResult::NotAccepted);
}

#[test]
fn flood_of_forged_statements_is_bounded() {
    let made = TestTree::new(1);
    let directory = tempfile::tempdir().unwrap();
    let server = start(ServeConfig {
        statements: Some(directory.path().to_owned()),
        ..config(vec![made.path()])
    });
    let mut client = server.connect();
    let mut forged = revocation(1, "");
    *forged.last_mut().unwrap() ^= 1;
    let results: Vec<_> = (0..2000).map(|_| client.put(&forged)).collect();
    assert!(results.iter().all(|result| {
        [PutStatementResult::Invalid, PutStatementResult::TryLater].contains(result)
    }));
    assert!(results.contains(&PutStatementResult::TryLater));
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(client.put(&revocation(1, "")), PutStatementResult::Stored);
}
