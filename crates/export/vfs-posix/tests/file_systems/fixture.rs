//! A mount namespace for each test, and file systems in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use vouch_testkit::{in_own_mounts, require, require_program, text_of, this_test};
use vouch_vfs::{
    AccessOverride, Attributes, Blocking, Caller, CreateHow, Created, Error, FileId, FileSystem,
    Name, NewNode, OpenAccess, OpenFile, SetAttributes, Stability,
};
use vouch_vfs_posix::{IdStore, Options, PosixFs, can_serve_others, leave_callers};

const ALONE: &str = "VOUCH_ALONE";

pub(crate) fn alone(test: &str, needs: &[&str], body: impl FnOnce(&Path)) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == test) {
        let directory = TempDir::new().expect("creating a directory succeeds");
        body(directory.path());
        leave_callers().expect("switching to root succeeds");
        return;
    }
    require("root, to mount file systems", can_serve_others());
    needs.iter().for_each(|program| require_program(program));
    report(in_own_mounts(&this_test(test)).env(ALONE, test));
}

pub(crate) fn report(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let said = text_of(&output);
    let complaints: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("test result")).collect();
    assert!(output.status.success(), "{}", complaints.join("\n"));
}

pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String, String> {
    leave_callers().expect("switching to root succeeds");
    let output = Command::new(program).args(args).output().expect("the program starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

pub(crate) fn mount(kind: &str, options: &str, source: &Path, point: &Path) {
    leave_callers().expect("switching to root succeeds");
    std::fs::create_dir_all(point).expect("creating a directory succeeds");
    run(
        "mount",
        [
            OsStr::new("-t"),
            kind.as_ref(),
            "-o".as_ref(),
            options.as_ref(),
            source.as_ref(),
            point.as_ref(),
        ],
    )
    .unwrap_or_else(|why| panic!("this kernel does not mount {kind} ({options}): {why}"));
}

pub(crate) fn image(kind: &str, more: &[&str], point: &Path) {
    let file = made(kind, more, point);
    mount(kind, "loop", &file, point);
}

pub(crate) fn made(kind: &str, more: &[&str], point: &Path) -> PathBuf {
    const LEN: u64 = 320 << 20;
    leave_callers().expect("switching to root succeeds");
    let file = point.with_extension("image");
    std::fs::File::create(&file)
        .and_then(|file| file.set_len(LEN))
        .expect("creating a sparse file succeeds");
    let quiet = if kind == "ext4" { vec!["-q", "-F"] } else { vec!["-q"] };
    let args = quiet.iter().chain(more).map(OsStr::new).chain([file.as_os_str()]);
    run(&format!("mkfs.{kind}"), args).unwrap_or_else(|why| panic!("mkfs.{kind}: {why}"));
    file
}

pub(crate) fn memory(point: &Path) {
    mount("tmpfs", "mode=755", Path::new("none"), point);
}

pub(crate) fn overlay(point: &Path) {
    let (lower, above) = (point.with_extension("lower"), point.with_extension("above"));
    std::fs::create_dir_all(&lower).expect("creating a directory succeeds");
    memory(&above);
    for part in ["upper", "work"] {
        std::fs::create_dir(above.join(part)).expect("creating a directory succeeds");
    }
    let above = above.display();
    let options = format!(
        "lowerdir={},upperdir={above}/upper,workdir={above}/work,index=off,nfs_export=off",
        lower.display()
    );
    mount("overlay", &options, Path::new("none"), point);
}

/// A FUSE file system whose process answers nothing while the file is open. Every call waits.
pub(crate) fn hung_fuse(point: &Path, user: u32) -> std::fs::File {
    use std::os::fd::AsRawFd as _;
    leave_callers().expect("switching to root succeeds");
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.expect("/dev/fuse");
    // `mount` inherits it.
    let shared = rustix::io::dup(&device).expect("a descriptor");
    let options =
        format!("fd={},rootmode=40000,user_id={user},group_id=0,allow_other", shared.as_raw_fd());
    std::fs::create_dir_all(point).expect("creating a directory succeeds");
    run("mount", ["-i", "-t", "fuse", "-o", &options, "hung", &point.to_string_lossy()])
        .expect("root may mount it");
    device
}

/// Fails instead of waiting for ever.
pub(crate) fn within_a_minute<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(call()));
    result
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("the call does not wait for the hung mount")
}

pub(crate) fn unmount(point: &Path) {
    run("umount", [point]).unwrap_or_else(|why| panic!("umount {}: {why}", point.display()));
}

pub(crate) fn with_names(store: &Path) -> Options {
    leave_callers().expect("switching to root succeeds");
    Options {
        ids: Some(Arc::new(IdStore::open(store).expect("creating a store succeeds"))),
        ..Options::default()
    }
}

pub(crate) fn export(path: &Path, options: Options) -> PosixFs {
    leave_callers().expect("switching to root succeeds");
    PosixFs::open(path, options).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) trait Short {
    fn find(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
    ) -> Result<(FileId, Attributes), Error>;
    fn new_file(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
        mode: u16,
    ) -> Result<Created, Error>;
    fn new_directory(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
        mode: u16,
    ) -> Result<FileId, Error>;
    fn attributes_of(&self, id: &FileId) -> Result<Attributes, Error>;
    fn opened(&self, who: &Caller, id: &FileId) -> Result<Arc<dyn OpenFile>, Error>;
}

impl<F: FileSystem> Short for F {
    fn find(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
    ) -> Result<(FileId, Attributes), Error> {
        self.lookup(who, directory, named(name), Blocking::Allowed)
    }

    fn new_file(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
        mode: u16,
    ) -> Result<Created, Error> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create(who, directory, named(name), CreateHow::Guarded, &set, BOTH)
    }

    fn new_directory(
        &self,
        who: &Caller,
        directory: &FileId,
        name: &str,
        mode: u16,
    ) -> Result<FileId, Error> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        Ok(self.make(who, directory, named(name), NewNode::Directory, &set)?.0)
    }

    fn attributes_of(&self, id: &FileId) -> Result<Attributes, Error> {
        self.attributes(id, Blocking::Allowed)
    }

    fn opened(&self, who: &Caller, id: &FileId) -> Result<Arc<dyn OpenFile>, Error> {
        self.open(who, id, BOTH, AccessOverride::None, Blocking::Allowed)
    }
}

pub(crate) const BOTH: OpenAccess = OpenAccess { read: true, write: true };

pub(crate) fn named(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).expect("a name")
}

pub(crate) fn put(file: &dyn OpenFile, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let mut written = 0;
    while written < bytes.len() {
        written += file
            .write(
                offset + written as u64,
                &bytes[written..],
                Stability::Unstable,
                Blocking::Allowed,
            )?
            .len;
    }
    Ok(())
}

pub(crate) fn content(file: &dyn OpenFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.read(
        0,
        1 << 20,
        vouch_vfs::ReadInto { bytes: &mut bytes, span_allowed: false },
        Blocking::Allowed,
    )
    .expect("reading succeeds");
    bytes
}

pub(crate) fn users() -> (Caller, Caller) {
    (Caller::new(1234, 1234, []), Caller::new(2345, 2345, []))
}

macro_rules! refused {
    ($call:expr, $why:ident) => {
        match $call {
            Err(vouch_vfs::Error::$why) => {}
            other => {
                panic!("{}: {:?}, not {}", stringify!($call), other.map(drop), stringify!($why))
            }
        }
    };
}
pub(crate) use refused;
