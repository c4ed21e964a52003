//! In a control group with less memory than the streams have data.

use std::path::{Path, PathBuf};

use vouch_testkit::require;
use vouch_vfs::{Blocking, Caller, FileSystem as _, ReadInto, Stability};
use vouch_vfs_posix::{IoMode, Options};

use crate::fixture::{Short as _, alone, content, export, mount, named, run};

const MEMORY_LEN: u64 = 192 << 20;
const WORKING_SET_LEN: u64 = 48 << 20;
const STREAM_LEN: u64 = 3 * MEMORY_LEN;
const PART_LEN: usize = 1 << 20;

const TEST: &str = "io_modes::stream_does_not_push_out_files_that_others_use";

#[test]
#[ignore = "needs root"]
fn stream_does_not_push_out_files_that_others_use() {
    alone(TEST, &["fincore"], |above| {
        let group = Group::enter();
        // Of this machine's disk.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let buffered = resident_after_stream(root.path(), IoMode::Buffered);
        assert!(buffered < WORKING_SET_LEN / 2, "the streams are too short: {buffered}");
        for mode in [IoMode::Uncached, IoMode::Direct { len_min: 64 << 10 }] {
            let resident = resident_after_stream(root.path(), mode);
            assert!(resident > WORKING_SET_LEN / 10 * 9, "{mode:?}: {resident}");
        }
        drop(group);
        // File systems without these modes serve the same data.
        let memory = above.join("memory");
        mount("tmpfs", "mode=755", Path::new("none"), &memory);
        write_and_read_odd_lengths(&memory);
        write_and_read_odd_lengths(root.path());
    });
}

/// Bytes in memory of a file that was read before another one was written and read.
fn resident_after_stream(root: &Path, mode: IoMode) -> u64 {
    let plain = export(root, Options::default());
    let used = plain.new_file(&Caller::root(), &plain.root(), "used", 0o644).expect("made");
    transfer(&*used.open, WORKING_SET_LEN, true);
    transfer(&*used.open, WORKING_SET_LEN, false);
    let fs = export(root, Options { io_mode: mode, ..Options::default() });
    let stream = fs.new_file(&Caller::root(), &fs.root(), "stream", 0o644).expect("made");
    transfer(&*stream.open, STREAM_LEN, true);
    transfer(&*stream.open, STREAM_LEN, false);
    let path = root.join("used");
    let shown = run("fincore", ["-b", "-n", "-o", "RES", &path.to_string_lossy()]);
    let resident = shown.expect("fincore answers").trim().parse().expect("a number");
    for (fs, name) in [(&plain, "used"), (&fs, "stream")] {
        fs.remove(&Caller::root(), &fs.root(), named(name), None).expect("removal succeeds");
    }
    resident
}

fn transfer(open: &dyn vouch_vfs::OpenFile, len: u64, is_written: bool) {
    let (part, mut bytes) = (vec![7; PART_LEN], Vec::new());
    for (number, offset) in (0..len).step_by(PART_LEN).enumerate() {
        if !is_written {
            bytes.clear();
            let into = ReadInto { bytes: &mut bytes, span_allowed: true };
            open.read(offset, PART_LEN, into, Blocking::Allowed).expect("reading succeeds");
            continue;
        }
        let written = open.write(offset, &part, Stability::Unstable, Blocking::Allowed);
        assert_eq!(written.expect("writing succeeds").len, PART_LEN);
        if number % 16 == 15 {
            open.commit(0, 0, Blocking::Allowed).expect("on disk");
        }
    }
    if is_written {
        open.commit(0, 0, Blocking::Allowed).expect("on disk");
    }
}

fn write_and_read_odd_lengths(root: &Path) {
    let mode = IoMode::Direct { len_min: 4096 };
    let fs = export(root, Options { io_mode: mode, ..Options::default() });
    let made = fs.new_file(&Caller::root(), &fs.root(), "odd", 0o644).expect("made");
    let data: Vec<u8> = (0..20_000u32).map(|number| number as u8).collect();
    let mut offset = 0;
    for len in [8192, 1, 4095, 4096, 3000] {
        let stability = if len == 4096 { Stability::FileSync } else { Stability::Unstable };
        let part = &data[offset..offset + len];
        made.open.write(offset as u64, part, stability, Blocking::Allowed).expect("written");
        offset += len;
    }
    assert_eq!(content(&*made.open), data[..offset]);
    fs.remove(&Caller::root(), &fs.root(), named("odd"), None).expect("removal succeeds");
}

/// A control group of version 1 or 2, which ends with the value.
struct Group {
    path: PathBuf,
    above: PathBuf,
}

impl Group {
    fn enter() -> Self {
        let name = format!("vouch-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (above, limit) = match v1.exists() {
            true => (v1.to_owned(), "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup".into(), "memory.max"),
        };
        let path = above.join(name);
        let made = std::fs::create_dir(&path)
            .and_then(|()| std::fs::write(path.join(limit), MEMORY_LEN.to_string()))
            .and_then(|()| std::fs::write(path.join("cgroup.procs"), "0"));
        require("a control group with a limit of memory", made.is_ok());
        Group { path, above }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        vouch_vfs_posix::leave_callers().expect("switching to root succeeds");
        let _ = std::fs::write(self.above.join("cgroup.procs"), "0");
        let _ = std::fs::remove_dir(&self.path);
    }
}
