//! `vouch nfs-mount` with the ticket of its user.

use std::io::{BufRead as _, BufReader};

use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

#[test]
#[ignore = "needs root, FUSE and a KDC"]
fn files_pass_under_each_flavour_and_across_a_restart_of_the_server() {
    let kdc = realm(Kdc::start());
    let mut export = Export::start(&kdc);
    let cache = kdc.kinit("krb5", "root", &kdc.path("keytabs/root"), "mounting", &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let point = directory.path();
    let mount = |cache: &str, sec: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .envs(kdc.environment("krb5"))
            .env("KRB5CCNAME", cache)
            .args(["nfs-mount", "--sec", sec, "--port", &export.address.port().to_string()])
            .arg("localhost:/export")
            .arg(point)
            .stdout(Stdio::piped());
        command
    };
    let refused =
        mount(&kdc.ccache("nobody"), "krb5").stderr(Stdio::piped()).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("kinit"), "{refused:?}");

    let mut mounts = Vec::new();
    for sec in ["krb5", "krb5i", "krb5p"] {
        mounts.push((sec, mount(&cache, sec)));
    }
    for (sec, mut command) in mounts {
        let mut child = KillOnDrop(command.spawn().expect("the binary starts"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("mounted on "), "{sec}: {line:?} {}", export.log());
        let text = vec![b'x'; 3_000_000];
        std::fs::write(point.join(sec), &text).expect("written");
        assert!(std::fs::read(export.data(sec)).expect("the server's") == text);
        if sec == "krb5p" {
            // The server forgets the security context.
            export.run(&kdc);
        }
        let more = format!("{sec} again");
        std::fs::write(point.join(&more), &text).expect("written");
        assert!(std::fs::read(point.join(&more)).expect("read") == text);
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{sec}");
    }
}
