use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn ordinary_user_mounts_reads_and_unmounts() {
    require_program("fusermount3");
    let is_open = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 == 0o006);
    require("/dev/fuse for everybody", is_open);
    let (site, _replica) = TestSite::served();
    let user = User::of(&site);
    let (name, mnt) = (site.name(""), user.home.join("mnt"));
    fs::create_dir(&mnt).expect("new");
    user.owns(&mnt);

    let mounted = user.run(["mount", "--background", "--log-file", "log", &name, "mnt"]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let read = user.tool("cat", ["mnt/hello"]);
    assert_eq!(
        String::from_utf8_lossy(&read.stdout),
        "hello world\n",
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let numbers = user.tool("tail", ["-n", "1", "mnt/link"]);
    assert_eq!(String::from_utf8_lossy(&numbers.stdout), "49999\n");
    assert!(!user.tool("touch", ["mnt/new"]).status.success(), "a published tree is read-only");
    if is_root() {
        // The kernel excludes all other users, even root.
        assert_eq!(
            fs::read(mnt.join("hello")).expect_err("not root's").kind(),
            std::io::ErrorKind::PermissionDenied
        );
    }
    let again = user.run(["mount", &name, "mnt"]);
    assert_eq!(again.status.code(), Some(8), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(
        fs::read_dir(user.home.join(".local/state/vouch"))
            .expect("the record of what was seen")
            .count()
            > 0
    );
    assert!(user.home.join(".cache/vouch").is_dir());

    let unmounted = user.run(["umount", "mnt"]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    assert!(eventually(Duration::from_secs(10), || fs::read_dir(&mnt)
        .is_ok_and(|mut names| names.next().is_none())));
    let allowed = fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"));
    if !allowed {
        let refused = user.run(["mount", "--background", "--allow-other", &name, "mnt"]);
        let output_text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && output_text.contains("user_allow_other"),
            "{output_text}"
        );
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn missing_fusermount_is_named() {
    require_program("fusermount3");
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    let user = User::of(&site);
    for directory in ["mounted", "mnt"] {
        fs::create_dir(user.home.join(directory)).expect("new");
        user.owns(&user.home.join(directory));
    }
    // Seen by this mount namespace only.
    fs::create_dir(site.path("programs")).expect("new");
    let name = site.name("");
    let script = format!(
        "export PATH=/usr/bin:/bin; run='setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups -- ./vouch'
        $run mount --background --log-file log '{name}' mounted || exit
        mount -t tmpfs none ../programs && mkdir ../programs/upper ../programs/work &&
        mount -t overlay -o lowerdir=/usr/bin,upperdir=../programs/upper,workdir=../programs/work none /usr/bin &&
        rm -f /usr/bin/fusermount3 /usr/bin/fusermount || exit
        $run mount '{name}' mnt; echo $? >&2
        $run umount mounted; echo $? >&2
        umount mounted"
    );
    let output = user.output(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    let text = String::from_utf8_lossy(&output.stderr);
    let refusals = ["vouch: mount: ", "vouch: umount: "].map(|said| {
        format!(
            "{said}fusermount3 is not installed, so users other than root can neither mount nor \
             unmount; install the package fuse3\n7\n"
        )
    });
    assert_eq!(text, refusals.concat());
}

struct User {
    home: PathBuf,
}

impl User {
    fn of(site: &TestSite) -> User {
        let user = User { home: site.path("home") };
        fs::create_dir(&user.home).expect("new");
        fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o755)).expect("ours");
        fs::copy(env!("CARGO_BIN_EXE_vouch"), user.home.join("vouch")).expect("a copy");
        user.owns(&user.home);
        user
    }

    fn owns(&self, path: &std::path::Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may call chown");
        }
    }

    fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.tool(self.home.join("vouch"), args)
    }

    fn tool<S: AsRef<OsStr>>(
        &self,
        tool: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Output {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let id = NOBODY.to_string();
            command
                .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
                .arg(tool.as_ref());
            command
        } else {
            Command::new(tool.as_ref())
        };
        self.output(command.args(args))
    }

    fn output(&self, command: &mut Command) -> Output {
        command.current_dir(&self.home).stdin(Stdio::null()).env("HOME", &self.home);
        for variable in
            ["VOUCH_STATE", "VOUCH_CACHE", "VOUCH_LOG", "XDG_STATE_HOME", "XDG_CACHE_HOME"]
        {
            command.env_remove(variable);
        }
        command.output().expect("the command starts")
    }
}

const NOBODY: u32 = 65_534;
