//! Comparison of flavours, and agents that accept requests only with the right ticket.

use std::io::{BufRead as _, BufReader};
use std::process::Output;
use vouch_testkit::words;

use serde_json::Value;

use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

const SHORT: &str = "--quick --rounds 1 --seconds 0.05 --file-size 2M --depth 4 --json";

fn vouch(kdc: &Kdc, cache: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
    command.envs(kdc.environment("krb5")).env("KRB5CCNAME", cache).args(args).stdin(Stdio::null());
    command.output().expect("the binary starts")
}

fn record(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("the record")).expect("JSON")
}

#[test]
#[ignore = "needs a KDC"]
fn flavours_are_compared_in_one_run() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    let (target, json) = (
        format!("nfs://localhost:{}/export", export.address.port()),
        kdc.path("run.json").display().to_string(),
    );
    let args = [
        &["bench", "concurrency", "--target", &target, "--sec", "krb5,krb5i,krb5p"],
        &words(SHORT)[..],
        &[&json],
    ]
    .concat();
    let without = vouch(&kdc, &kdc.ccache("nobody"), &args);
    assert!(
        !without.status.success() && text_of(&without).contains("kinit"),
        "{}",
        text_of(&without)
    );
    let cache = kdc.kinit("krb5", "root", &kdc.path("keytabs/root"), "measuring", &[]);
    let done = vouch(&kdc, &cache, &args);
    assert!(done.status.success(), "{}\nthe server: {}", text_of(&done), export.log());
    let record = record(&json);
    let flavours: Vec<_> = record["subjects"]
        .as_array()
        .expect("subjects")
        .iter()
        .map(|subject| subject["sec"].clone())
        .collect();
    assert_eq!(flavours, ["krb5", "krb5i", "krb5p"]);
    let results = record["results"].as_array().expect("results");
    assert!(results.len() >= 10, "{}", results.len());
    for result in results {
        let subjects = result["subjects"].as_array().expect("subjects");
        assert_eq!(subjects.len(), 3, "{result}");
        for subject in subjects {
            assert!(subject["operations"].as_u64() > Some(0) && subject["errors"] == 0, "{result}");
        }
    }
    assert!(!export.clients().is_empty());
    assert_eq!(
        std::fs::read_dir(export.data("..").join("data")).expect("a directory").count(),
        0,
        "the run leaves no files"
    );
}

#[test]
#[ignore = "needs a KDC"]
fn agents_accept_requests_only_with_the_right_ticket() {
    let kdc = realm(Kdc::start());
    kdc.add(&["host/localhost", "other"]);
    let (agent_keys, other_keys) =
        (kdc.keytab("agent", &["host/localhost"]), kdc.keytab("other", &["other"]));
    let export = Export::start(&kdc);
    let cache = kdc.kinit("krb5", "root", &kdc.path("keytabs/root"), "measuring", &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
    command
        .envs(kdc.environment("krb5"))
        .env("KRB5CCNAME", &cache)
        .args(words("bench agent --listen 127.0.0.1:0 --principal"));
    command
        .arg(format!("root@{REALM}"))
        .arg("--keytab")
        .arg(&agent_keys)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut agent = KillOnDrop(command.spawn().expect("the binary starts"));
    let mut line = String::new();
    BufReader::new(agent.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let port = line.trim().rsplit(':').next().expect("an address").to_owned();
    let (target, agent_at) =
        (format!("nfs://localhost:{}/export", export.address.port()), format!("localhost:{port}"));
    let json = kdc.path("run.json").display().to_string();
    let args = [
        &["bench", "concurrency", "--target", &target, "--sec", "krb5i", "--agent", &agent_at],
        &words(SHORT)[..],
        &[&json],
    ]
    .concat();
    let others = kdc.kinit("krb5", "other", &other_keys, "others", &[]);
    let refused = vouch(&kdc, &others, &args);
    assert_eq!(refused.status.code(), Some(5), "{}", text_of(&refused));
    assert!(text_of(&refused).contains(&port), "{}", text_of(&refused));
    let done = vouch(&kdc, &cache, &args);
    assert!(done.status.success(), "{}\nthe server: {}", text_of(&done), export.log());
    for result in record(&json)["results"].as_array().expect("results") {
        let sample = &result["subjects"][0]["samples"][0];
        let nodes = sample["nodes"].as_array().expect("figures of each node");
        assert!(nodes.len() == 1 && nodes[0][1]["operations"] == sample["operations"], "{result}");
        assert_eq!(result["subjects"][0]["errors"], 0, "{result}");
    }
}
