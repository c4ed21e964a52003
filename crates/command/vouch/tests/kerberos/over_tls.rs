//! Kerberos over TLS: the ticket says who asks, and TLS protects the rest.

use crate::prelude::*;
use vouch_testkit::words;

#[test]
#[ignore = "needs a KDC"]
fn ticket_identifies_user_of_tls_connection() {
    let kdc = realm(Kdc::start());
    let export = Export::start_with(&kdc, ServerOptions { tls: true, ..ServerOptions::default() });
    let cache = kdc.kinit("krb5", "root", &kdc.path("keytabs/root"), "measuring", &[]);
    let target = format!("nfs://localhost:{}/export", export.address.port());
    let bench = |sec: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.envs(kdc.environment("krb5")).env("KRB5CCNAME", &cache).stdin(Stdio::null());
        command.args(words(&format!(
            "bench concurrency --quick --target {target} --sec {sec} --rounds 1"
        )));
        command.args(["--seconds", "0.05", "--file-size", "2M", "--depth", "4"]).args(more);
        command.output().expect("the binary starts")
    };
    let certificate = export.certificate();
    let done = bench("krb5+tls", &["--tls-ca", certificate.to_str().expect("a plain path")]);
    assert!(
        done.status.success(),
        "{}\nthe server: {}",
        String::from_utf8_lossy(&done.stderr),
        export.log()
    );
    let callers = export.callers();
    assert!(callers.contains(&(format!("root@{REALM}"), "tls".to_owned())), "{callers:?}");

    // The ticket alone does not suffice.
    let refused = bench("krb5", &[]);
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    export.wait_for_log(&["TLS refused", "a call without TLS"]);
}
