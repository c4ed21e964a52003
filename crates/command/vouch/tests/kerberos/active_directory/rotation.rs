//! A new password of the machine's account while clients make contexts with fresh tickets.

use std::path::{Path, PathBuf};
use vouch_testkit::assert_contains;

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4_client::establish;

use super::domain::{Domain, Export, succeed_with};
use super::{TARGET, connect, documented, walk};
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

const DIRECTORY: &str = "VOUCH_TEST_DOMAIN_LOAD";
const SERVICE: &str = "nfs/filer.ad.vouch.test";
const PRINCIPALS: [&str; 3] = ["FILER$", "host/filer.ad.vouch.test", SERVICE];
const ROTATIONS: u32 = 3;

/// The child that makes contexts until it is told to stop.
struct Load {
    child: KillOnDrop,
    directory: PathBuf,
}

pub(super) fn run(domain: &Domain, export: &Export) {
    let load = Load::start(domain, export);
    for number in 1..=ROTATIONS {
        load.wait_for_rounds(2);
        let next = domain.key_number() + 1;
        let password = format!("Rotated-{number}-vouch");
        domain.add_keys(&password, next);
        domain.set_password(&password);
        assert_eq!(load.new_ticket_number(domain), next, "the controller has the new key");
        load.wait_for_rounds(3);
    }
    load.end(domain);
    // The other order: until the keytab has the key, new contexts are refused.
    let next = domain.key_number() + 1;
    domain.set_password("Forgotten-vouch");
    let alice = domain.kinit("alice", "stale");
    let out = export.child(domain, &alice).output().expect("this program starts");
    assert!(
        !out.status.success() && domain.log().contains("the keytab lacks this key"),
        "{}",
        domain.log()
    );
    let found = domain.check(&[&export.state.display().to_string()]);
    assert_contains!(found, "keytab-stale-key: ", &format!("kvno {next}"));
    domain.add_keys("Forgotten-vouch", next);
    export.enters(domain, &alice).unwrap_or_else(|status| panic!("{status}: {}", domain.log()));
}

impl Domain {
    /// Number of the newest key in the keytab of the machine.
    pub(super) fn key_number(&self) -> u32 {
        let out = Command::new("klist")
            .arg("-k")
            .arg(self.path("filer.keytab"))
            .output()
            .expect("klist(1)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let numbers = text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
        numbers.max().unwrap_or_else(|| panic!("a keytab: {text}"))
    }

    /// Adds keys before the controller has them, as docs/directories.md says.
    pub(super) fn add_keys(&self, password: &str, number: u32) {
        let addent = documented::keytab_command("addent");
        let mut input = String::new();
        for principal in PRINCIPALS {
            let line =
                addent.replace(SERVICE, principal).replace(" -k 8 ", &format!(" -k {number} "));
            input.push_str(&format!("{line}\n{password}\n"));
        }
        input.push_str(
            &documented::keytab_command("wkt")
                .replace("/etc/krb5.keytab", &self.path("filer.keytab").display().to_string()),
        );
        input.push_str("\nquit\n");
        succeed_with(Command::new("ktutil").env("KRB5_CONFIG", self.path("krb5.conf")), &input);
        assert_eq!(self.key_number(), number, "ktutil has written the keys");
    }

    pub(super) fn set_password(&self, password: &str) {
        succeed(
            &mut self
                .documented("samba-tool user setpassword", &format!("--newpassword={password}")),
        );
    }
}

impl Load {
    fn start(domain: &Domain, export: &Export) -> Load {
        let directory = domain.path("load");
        std::fs::create_dir(&directory).expect("a directory");
        let cache = domain.kinit("alice", "load/tgt");
        let mut command =
            export.child_of("active_directory::rotation::load_process", domain, &cache);
        let log = std::fs::File::create(directory.join("log")).expect("a file");
        command.env(DIRECTORY, &directory).stdout(log.try_clone().expect("a file")).stderr(log);
        Load { child: KillOnDrop(command.spawn().expect("this program starts")), directory }
    }

    fn rounds(&self) -> u64 {
        let text = std::fs::read_to_string(self.directory.join("rounds")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn wait_for_rounds(&self, count: u64) {
        let begun = self.rounds();
        within(120, "the load does not go on", || {
            assert!(
                Path::new("/proc").join(self.child.id().to_string()).join("exe").exists(),
                "the load failed: {}",
                self.log()
            );
            self.rounds() >= begun + count
        });
    }

    /// Number of the key of a ticket that the controller makes now.
    fn new_ticket_number(&self, domain: &Domain) -> u32 {
        let cache = self.directory.join("number");
        std::fs::copy(self.directory.join("tgt"), &cache).expect("a copy");
        let mut command = Command::new("kvno");
        command
            .env("KRB5_CONFIG", domain.path("krb5.conf"))
            .arg("-c")
            .arg(&cache)
            .arg("nfs/filer.ad.vouch.test");
        let out = command.output().expect("kvno(1)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.trim()
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("kvno: {text}"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn end(mut self, domain: &Domain) {
        std::fs::write(self.directory.join("enough"), "").expect("a file");
        let status = self.child.wait().expect("our child");
        assert!(status.success(), "{}{}", self.log(), domain.log());
    }
}

/// The child of the load; does nothing without its variable.
#[test]
fn load_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let tickets = |name: &str| {
        let path = directory.join(name);
        std::fs::copy(directory.join("tgt"), &path).expect("a copy");
        ClientSource { ccache: Some(format!("FILE:{}", path.display())), ..ClientSource::default() }
    };
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let (steady, _) = connect(&tickets("steady")).await;
        let mut rounds = 0u64;
        while !directory.join("enough").exists() {
            // A copy of the ticket-granting ticket alone: the service ticket is a new one.
            let initiator = MitInitiator::new(TARGET, &tickets("fresh"))
                .unwrap_or_else(|fault| panic!("{fault}"));
            establish(super::server_address(), initiator, Service::Privacy)
                .unwrap_or_else(|error| panic!("round {rounds}: {error}"));
            walk(&steady).await.unwrap_or_else(|status| panic!("round {rounds}: {status}"));
            rounds += 1;
            std::fs::write(directory.join("rounds"), rounds.to_string()).expect("a file");
        }
    });
}
