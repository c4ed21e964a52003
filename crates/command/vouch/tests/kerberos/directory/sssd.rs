//! The same directory by SSSD: users, groups, the stated time of a removed membership, and an outage.

use std::path::Path;
use vouch_testkit::words;

use super::site::{CROWD_LEN, Site, USERS, enters, require_directory, uid};
use super::{STATED, assert_memberships, assert_users_are_found, owners, runtime, until_refused};
use crate::documented;
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::ldap::{BASE, wait_for};

/// A root file system with SSSD, by `script/install-needs sssd`.
static ROOT: LazyLock<String> = LazyLock::new(|| peers_root("sssd"));
/// `entry_cache_timeout` of these tests, in seconds.
const LIFE_S: u64 = 2;
const LIFE: &str = "entry_cache_timeout = 2";

const START: &str = r#"set -e
mount --bind "$0/var-lib/sss" "$1/var/lib/sss"
mount --bind "$0/sssd" "$1/etc/sssd"
mount --bind "$0/sssd-log" "$1/var/log/sssd"
mount -t tmpfs tmpfs "$1/run"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot "$1" /usr/sbin/sssd -i
"#;

impl Site {
    fn start_sssd() -> Site {
        let module = Path::new(&*ROOT)
            .join(format!("usr/lib/{}-linux-gnu/libnss_sss.so.2", std::env::consts::ARCH));
        require_directory();
        require("sssd of script/install-needs", module.exists());
        let mut site = Site::without_name_service("sss", "".into());
        site.module = site.path("module");
        for name in ["module", "sssd", "sssd/conf.d", "sssd-log", "var-lib"] {
            std::fs::create_dir(site.path(name)).expect("a directory");
        }
        std::fs::copy(module, site.path("module/libnss_sss.so.2")).expect("the module of SSSD");
        let copied = Command::new("cp")
            .arg("-a")
            .arg(Path::new(&*ROOT).join("var/lib/sss"))
            .arg(site.path("var-lib"))
            .status();
        assert!(copied.expect("cp(1)").success(), "a copy of /var/lib/sss");
        let names = [
            ("ldap://ldap.vouch.test", &*site.url),
            ("dc=example,dc=org", BASE),
            ("/etc/ssl/certs/example-ca.pem", "/etc/sssd/ca.pem"),
            ("entry_cache_timeout = 300", LIFE),
        ];
        let conf =
            names.iter().fold(documented::file("id_provider = ldap"), |text, (example, ours)| {
                text.replace(example, ours)
            });
        let conf = format!("{conf}offline_timeout = 1\noffline_timeout_random_offset = 0\n");
        std::fs::copy(site.path("ca.pem"), site.path("sssd/ca.pem"))
            .expect("the certificate of slapd");
        std::fs::write(site.path("sssd/sssd.conf"), conf).expect("a file");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(site.path("sssd/sssd.conf"), private).expect("an own file");
        site.mounts.push(("var-lib", "/var/lib"));
        let mut command = Command::new("unshare");
        command.args(words("--mount --pid --fork --kill-child --propagation private"));
        command.args(["sh", "-c", START]);
        command.arg(site.path("")).arg(&*ROOT).stdin(Stdio::null()).stdout(Stdio::null());
        let log = std::fs::File::create(site.path("sssd.log")).expect("a file");
        site.name_service = Some(KillOnDrop(command.stderr(log).spawn().expect("unshare(1)")));
        wait_for(&site.path("var-lib/sss/pipes/nss"));
        let end = Instant::now() + Duration::from_secs(60);
        while !site.check(&["--user", "user1"]).contains("ok       user1") {
            assert!(
                Instant::now() < end,
                "SSSD does not answer: {}",
                std::fs::read_to_string(site.path("sssd.log")).unwrap_or_default()
            );
        }
        site
    }
}

/// SSSD answers from its cache in an outage, and a removed member loses its right after the life of
/// that answer.
#[test]
#[ignore = "needs root, slapd and sssd"]
fn membership_by_sssd_ends_within_the_stated_time() {
    let mut site = Site::start_sssd();
    let export = site.export(&["--identity-cache", "2s", "--identity-wait", "120s"]);
    runtime().block_on(async {
        let [member, other] = [export.client(uid(1)).await, export.client(uid(2)).await];
        assert_eq!(
            (enters(&member, "crowd0").await, enters(&other, "crowd0").await),
            (Ok(()), Ok(()))
        );
        site.kill_slapd();
        let end = Instant::now() + STATED;
        while Instant::now() < end {
            assert_eq!(
                (enters(&member, "crowd0").await, enters(&other, "crowd1").await),
                (Ok(()), Err(Status::ACCESS))
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        site.start_slapd();
        site.remove_from_crowd(1, 0);
        // Not before SSSD has connected again.
        until_refused(
            &member,
            Instant::now(),
            STATED + Duration::from_secs(LIFE_S + 120),
            Status::ACCESS,
        )
        .await;
        assert_eq!(enters(&other, "crowd0").await, Ok(()));
    });
}

#[test]
#[ignore = "needs root, slapd and sssd"]
fn users_and_groups_by_sssd_are_right() {
    let site = Site::start_sssd();
    let export = site.export(&["--identity-wait", "120s"]);
    runtime().block_on(async {
        let root = export.client(0).await;
        for user in (0..USERS).step_by(97) {
            let expected =
                (format!("user{user}@vouch.test"), format!("crowd{}@vouch.test", user / CROWD_LEN));
            assert_eq!(owners(&root, &user.to_string()).await, expected);
        }
        assert_memberships(&export, 970).await;
    });
    assert_users_are_found(&site);
}
