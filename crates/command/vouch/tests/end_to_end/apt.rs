//! Debian repositories in published trees, with apt of this machine: by a gateway, and by its own method.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

use crate::gateway::Gateway;
use crate::prelude::*;
use crate::replica_attacks::{copy, flip_data};
use crate::test_site::Replica;

fn package(site: &TestSite, version: &str) {
    // Longer than what stands in an inode, also compressed.
    let filler: String = (0..3000_u64).map(|n| format!(" {:x}\n", n * n * 0x9e37_79b9)).collect();
    let control = format!(
        "Package: vouch-sample\nVersion: {version}\nArchitecture: all\nMaintainer: The Vouch authors <nobody@example.org>\nDescription: sample\n{filler}"
    );
    site.write("build/DEBIAN/control", control);
    site.write("build/usr/share/vouch-sample/version", version);
    site.run_tool("mkdir", &["-p", "src/debian/pool"]);
    site.run_tool(
        "dpkg-deb",
        &words(&format!(
            "--root-owner-group -b build src/debian/pool/vouch-sample_{version}_all.deb"
        )),
    );
    let indexes = "cd src/debian && rm -f Release && apt-ftparchive packages pool >Packages && gzip -kf Packages && apt-ftparchive release . >../Release && mv ../Release .";
    site.run_tool("sh", &["-c", indexes]);
}

/// apt with a root directory of its own.
struct Apt<'a> {
    site: &'a TestSite,
    options: Vec<String>,
}

impl<'a> Apt<'a> {
    fn new(site: &'a TestSite, uri: &str, more: &[&str]) -> Self {
        for dir in [
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "etc/apt/trusted.gpg.d",
            "var/lib/apt/lists/partial",
            "var/log/apt",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/cache/apt/archives/partial",
        ] {
            site.run_tool("mkdir", &["-p", &format!("root/{dir}")]);
        }
        site.write("root/var/lib/dpkg/status", "");
        site.write("root/etc/apt/sources.list", format!("deb [trusted=yes] {uri} ./\n"));
        let root = site.path("root");
        let root = root.to_str().expect("a plain path");
        let mut options = vec![
            format!("Dir={root}"),
            format!("Dir::State::status={root}/var/lib/dpkg/status"),
            format!("DPkg::Options::=--root={root}"),
            format!("DPkg::Options::=--log={root}/var/log/dpkg.log"),
            "DPkg::Options::=--force-script-chrootless,not-root".to_owned(),
            "Dir::Bin::dpkg=/usr/bin/dpkg".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=0".to_owned(),
            "Acquire::http::Proxy=false".to_owned(),
        ];
        options.extend(more.iter().map(|option| (*option).to_owned()));
        Self { site, options }
    }

    fn run(&self, line: &str) -> String {
        let (ended_well, said) = self.try_run(line);
        assert!(ended_well, "apt-get {line}: {said}");
        said
    }

    fn try_run(&self, line: &str) -> (bool, String) {
        let mut apt = Command::new("apt-get");
        apt.env("LC_ALL", "C").env_remove("http_proxy");
        apt.args(self.options.iter().flat_map(|option| ["-o", option.as_str()])).args(words(line));
        let output = apt.output().expect("apt-get starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Ordinary users only download.
    fn install(&self, version: &str) {
        if !is_root() {
            self.run("install -y --download-only vouch-sample");
            return;
        }
        self.run("install -y vouch-sample");
        let installed = self.site.path("root/usr/share/vouch-sample/version");
        assert_eq!(std::fs::read_to_string(installed).expect("the package's file"), version);
    }

    /// Cuts a downloaded package off, with its time.
    fn cut_off(&self, deb: &str) {
        let archives = self.site.path("root/var/cache/apt/archives");
        let whole = archives.join(deb);
        let date = whole.metadata().and_then(|kept| kept.modified()).expect("a downloaded package");
        let partial = archives.join("partial").join(deb);
        std::fs::rename(&whole, &partial).expect("one file system");
        let partial = std::fs::File::options().write(true).open(partial).expect("a file");
        partial.set_len(200).and_then(|()| partial.set_modified(date)).expect("a beginning");
    }
}

#[test]
#[ignore = "needs apt-utils"]
fn apt_updates_and_installs_from_a_published_repository() {
    require_programs(&["apt-get", "apt-ftparchive", "dpkg-deb"]);
    let site = TestSite::new();
    package(&site, "1.0");
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &["--refresh", "1s"]);
    let own = ["Dir::Bin::methods=/usr/lib/apt/methods", "APT::Sandbox::User="];
    let apt = Apt::new(&site, &gateway.url("/debian"), &own);
    apt.run("update");
    apt.run("install -y --download-only vouch-sample");
    let deb = "vouch-sample_1.0_all.deb";
    apt.cut_off(deb);
    let said = apt.run("install -y --download-only -o Debug::Acquire::http=true vouch-sample");
    assert!(said.contains("206 Partial Content"), "apt resumes: {said}");
    apt.install("1.0");
    let said = apt.run("update");
    assert!(said.contains("Hit:") && !said.contains("Get:"), "apt gets 304: {said}");

    package(&site, "2.0");
    site.publish();
    within(30, "the new revision is not shown", || {
        gateway.get("/debian/Packages").text().contains("2.0")
    });
    site.write("root/var/cache/apt/archives/partial/vouch-sample_2.0_all.deb", "cut off");
    let said = apt.run("update");
    assert!(!said.contains("W:") && !said.contains("E:"), "{said}");
    apt.install("2.0");
}

/// As the package installs it, with this program and its own state.
fn method(site: &TestSite) -> String {
    let methods = site.path("methods");
    std::fs::create_dir(&methods).expect("a directory");
    for method in std::fs::read_dir("/usr/lib/apt/methods").expect("apt's methods") {
        let method = method.expect("an entry");
        symlink(method.path(), methods.join(method.file_name())).expect("a link");
    }
    let script = format!(
        "#!/bin/sh\nVOUCH_STATE={} exec {} apt-method --timeout 2s\n",
        site.path("apt-state").display(),
        env!("CARGO_BIN_EXE_vouch")
    );
    site.write("methods/vouch", script);
    std::fs::set_permissions(methods.join("vouch"), PermissionsExt::from_mode(0o755))
        .expect("a file");
    format!("Dir::Bin::methods={}", methods.display())
}

#[test]
#[ignore = "needs root and apt-utils"]
fn apt_reads_a_published_repository_by_the_name_of_its_tree() {
    require_programs(&["apt-get", "apt-ftparchive", "dpkg-deb"]);
    let site = TestSite::new();
    package(&site, "1.0");
    site.publish();
    let replica = site.serve();
    // The method becomes this user, who reaches the directories of apt.
    std::fs::set_permissions(site.path(""), PermissionsExt::from_mode(0o755)).expect("a directory");
    std::fs::create_dir(site.path("apt-state")).expect("a directory");
    site.run_tool("chown", &["_apt", "apt-state"]);
    let methods = method(&site);
    let name = site.name("");
    let (_, id) = name.split_once(',').expect("a name");
    let uri = format!("vouch://@127.0.0.1,{id}:{}/debian", site.port);
    let apt = Apt::new(&site, &uri, &[&methods]);
    let said = apt.run("update");
    assert!(!said.contains("W:") && !said.contains("E:"), "{said}");
    apt.run("install -y --download-only vouch-sample");
    apt.cut_off("vouch-sample_1.0_all.deb");
    let debug = "-o Debug::pkgAcquire::Worker=true";
    let said = apt.run(&format!("install -y --download-only {debug} vouch-sample"));
    assert_contains!(said, "Resume-Point:%20200");
    apt.install("1.0");
    let said = apt.run("update");
    assert!(said.contains("Hit:") && !said.contains("Get:"), "nothing is loaded again: {said}");

    package(&site, "2.0");
    site.publish();
    site.write("root/var/cache/apt/archives/partial/vouch-sample_2.0_all.deb", "cut off");
    apt.run("update");
    apt.install("2.0");
    let user = std::fs::metadata(site.path("apt-state")).expect("a directory").uid();
    for kept in std::fs::read_dir(site.path("apt-state")).expect("a directory") {
        assert_eq!(
            kept.and_then(|kept| kept.metadata()).expect("a file").uid(),
            user,
            "not root's"
        );
    }

    drop(replica);
    assert_contains!(apt.run("update"), "W: Failed to fetch vouch://");
}

/// A replica can refuse a package, and cannot replace it.
#[test]
#[ignore = "needs root and apt-utils"]
fn apt_takes_nothing_from_trees_that_are_not_believed() {
    require_programs(&["apt-get", "apt-ftparchive", "dpkg-deb"]);
    let site = TestSite::new();
    package(&site, "1.0");
    site.publish();
    std::fs::set_permissions(site.path(""), PermissionsExt::from_mode(0o755)).expect("a directory");
    let methods = method(&site);
    let name = site.name("");
    let (_, id) = name.split_once(',').expect("a name");
    let uri = format!("vouch://@127.0.0.1,{id}:{}/debian", site.port);
    let script = std::fs::read_to_string(site.path("methods/vouch")).expect("a script");
    // A state directory for each, which has seen nothing.
    let refused = |what: &str, replica: Replica, options: &str, reason: &str| {
        let state = format!("{what}-state");
        std::fs::create_dir(site.path(&state)).expect("a directory");
        site.run_tool("chown", &["_apt", &state]);
        let line = script.replace("apt-state", &state);
        site.write("methods/vouch", line.trim_end().to_owned() + options + "\n");
        let apt = Apt::new(&site, &uri, &[&methods]);
        let (_, said) = apt.try_run("update");
        assert!(said.contains(": Failed to fetch vouch://") && said.contains(reason), "{said}");
        assert!(!apt.try_run("install -y --download-only vouch-sample").0, "{what}");
        assert!(!site.path("root/var/cache/apt/archives/vouch-sample_1.0_all.deb").exists());
        drop(replica);
        std::fs::remove_dir_all(site.path("root")).expect("apt's root");
    };

    copy(&site.path("db"), &site.path("forged"));
    assert!(flip_data(&site.path("forged/packs")) > 0);
    refused("forged", site.serve_db("forged", site.port), "", "no replica can be trusted");

    let witness =
        "witness w away.example/witness+60aca3f3+BIdmh2rhn+hPMvkjJjU0HkR0Pod8JIo+eXQTGnwxrvgH";
    site.write("policy", format!("{witness}\nquorum w\n"));
    let policy = format!(" --policy {}", site.path("policy").display());
    refused("unwitnessed", site.serve(), &policy, "policy is not met");

    copy(&site.path("db"), &site.path("expiring"));
    let expiring = site.publication().replace("--db db", "--db expiring") + " --duration 1s";
    site.run_ok(&expiring);
    std::thread::sleep(std::time::Duration::from_secs(2));
    refused("expired", site.serve_db("expiring", site.port), "", "expired");

    site.run_ok("revoke keys --reason stolen --out revocation");
    site.run_ok("revoke --statement revocation --db db");
    refused("revoked", site.serve(), "", "revoked");
}
