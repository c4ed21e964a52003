use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use vouch_bench::{Run, report};

use super::measure::joined;
use crate::exit::{At as _, Failure, Outcome};
use crate::output;

/// Options of results.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// Write the record of the run (docs/formats/bench.md), from which `vouch bench report` makes
    /// all other output.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page with plots.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Write all measurements as CSV.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) csv: Option<PathBuf>,
}

impl Outputs {
    pub(super) fn check(&self) -> Outcome {
        for file in [&self.json, &self.html, &self.csv].into_iter().flatten() {
            if file.metadata().is_ok_and(|there| !there.is_file()) && !file.is_dir() {
                continue;
            }
            let was_there = file.exists();
            std::fs::File::options().create(true).append(true).open(file).at(file.display())?;
            if !was_there {
                std::fs::canonicalize(file).and_then(std::fs::remove_file).at(file.display())?;
            }
        }
        Ok(())
    }

    /// Writes the record after each case, so that a killed run can be resumed. `whole`: earlier
    /// parts.
    pub(super) fn checkpoint(
        &self,
        whole: Option<Run>,
        several: bool,
    ) -> Box<dyn FnMut(&Run) + Send> {
        let Some(file) = self.json.clone().filter(|file| {
            !file.metadata().is_ok_and(|there| !there.is_file()) && !is_descriptor(file)
        }) else {
            return Box::new(|_| {});
        };
        Box::new(move |run| {
            let mut run = joined(whole.clone(), run.clone(), several);
            run.interrupted = true;
            if let Err(error) = replace(&file, &run.to_json()) {
                tracing::warn!("{}: {error}", file.display());
            }
        })
    }

    pub(super) fn write_page(&self, page: &str) -> Outcome {
        match (&self.html, &self.json, &self.csv) {
            (Some(file), None, None) => replace(file, page).at(file.display()),
            _ => Err(Failure::usage(
                "RUN.json",
                "several runs become one --html page; --json and --csv take one run",
            )),
        }
    }

    /// A failure prevents no other output. Returns the first failure.
    pub(super) fn write(&self, run: &Run) -> Outcome {
        let printed = output::text(&report::table(run));
        let of = |file: &Option<PathBuf>, make: fn(&Run) -> String| {
            file.as_deref().map_or(Ok(()), |file| replace(file, &make(run)).at(file.display()))
        };
        let files = [
            of(&self.json, Run::to_json),
            of(&self.html, report::html),
            of(&self.csv, report::csv),
        ];
        files.into_iter().fold(printed, Result::and)
    }
}

/// Atomic: a full disk keeps the earlier record. Writes in place where that is impossible or would
/// change the owner.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    if file.metadata().is_ok_and(|there| !there.is_file()) || is_descriptor(file) {
        return File::options().append(true).open(file)?.write_all(text.as_bytes());
    }
    // Target of a link, even if it does not exist yet.
    let place = match std::fs::canonicalize(file) {
        Ok(place) => place,
        Err(_) => std::fs::read_link(file)
            .map_or_else(|_| file.to_owned(), |to| file.parent().unwrap_or(Path::new("")).join(to)),
    };
    let before = place.metadata();
    let mut name = OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let part = place.with_file_name(name);
    let Ok(mut made) = File::create_new(&part) else { return std::fs::write(&place, text) };
    if before.as_ref().is_ok_and(|before| keep_owner(&made, before).is_err()) {
        std::fs::remove_file(&part)?;
        return std::fs::write(&place, text);
    }
    let outcome = before
        .map_or(Ok(()), |before| made.set_permissions(before.permissions()))
        .and_then(|()| made.write_all(text.as_bytes()))
        // Errors of a server or quota come while the earlier file still exists.
        .and_then(|()| made.sync_all())
        .and_then(|()| std::fs::rename(&part, &place));
    if outcome.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    outcome
}

fn keep_owner(made: &File, before: &Metadata) -> io::Result<()> {
    let ours = made.metadata()?;
    match (ours.uid(), ours.gid()) == (before.uid(), before.gid()) {
        true => Ok(()),
        false => fchown(made, Some(before.uid()), Some(before.gid())),
    }
}

/// A descriptor may also receive the table, so its file is not replaced.
fn is_descriptor(file: &Path) -> bool {
    let directory = file.parent().unwrap_or(Path::new(""));
    [Path::new("/dev/stdout"), Path::new("/dev/stderr")].contains(&file)
        || directory == Path::new("/dev/fd")
        || directory.ends_with("fd")
            && directory.parent().and_then(Path::parent) == Some(Path::new("/proc"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn outputs(json: &Path, csv: &Path) -> Outputs {
        Outputs { json: Some(json.into()), html: None, csv: Some(csv.into()) }
    }

    #[test]
    fn unwritable_file_costs_no_other_output() {
        let at = tempfile::tempdir().expect("a directory");
        let (json, csv) = (at.path().join("gone/run.json"), at.path().join("run.csv"));
        let run = Run::begin("test".into(), true);
        let failure = outputs(&json, &csv).write(&run).expect_err("there is no such directory");
        assert!(failure.to_string().contains("run.json"), "{failure}");
        assert_eq!(std::fs::read_to_string(&csv).expect("the other is written"), report::csv(&run));
    }

    #[test]
    fn links_stay_and_files_are_replaced_whole() {
        let at = tempfile::tempdir().expect("a directory");
        let (link, there, csv) =
            (at.path().join("link"), at.path().join("there"), at.path().join("run.csv"));
        symlink("there", &link).expect("a link");
        std::fs::write(&csv, "before").expect("a file");
        std::fs::set_permissions(&csv, std::fs::Permissions::from_mode(0o600)).expect("our own");
        let (outputs, run) = (outputs(&link, &csv), Run::begin("test".into(), true));
        outputs.check().expect("both can be written");
        assert!(link.is_symlink() && !there.exists(), "nothing is left of it");
        assert_eq!(std::fs::read_to_string(&csv).expect("the entry exists"), "before");
        outputs.write(&run).expect("both can be written");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&there).expect("behind the link"), run.to_json());
        assert_eq!(csv.metadata().expect("the entry exists").permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(at.path()).expect("the entry exists").count(),
            3,
            "no part is left"
        );
        replace(Path::new("/dev/null"), "x").expect("all bytes are taken");
        assert!(!Path::new("/dev/null").metadata().expect("the entry exists").is_file());
    }

    #[test]
    fn pipe_by_descriptor_receives_record() {
        for directory in ["/dev/fd", "/proc/self/fd"] {
            let (mut reader, writer) = io::pipe().expect("a pipe");
            let name = Path::new(directory).join(writer.as_raw_fd().to_string());
            let outputs = Outputs { json: Some(name.clone()), html: None, csv: None };
            outputs.check().expect("writing succeeds");
            replace(&name, "all of it").expect("writing succeeds");
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("its end");
            assert_eq!(text, "all of it");
        }
    }

    #[test]
    fn file_by_descriptor_is_appended_to() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"table, ").expect("all bytes are taken");
        replace(&Path::new("/dev/fd").join(file.as_file().as_raw_fd().to_string()), "record")
            .expect("writing succeeds");
        assert_eq!(std::fs::read_to_string(file.path()).expect("the same file"), "table, record");
    }

    #[test]
    fn file_in_memory_is_replaced() {
        let at = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let (json, csv) = (at.path().join("run.json"), at.path().join("run.csv"));
        let (outputs, run) = (outputs(&json, &csv), Run::begin("test".into(), true));
        for _ in 0..2 {
            outputs.check().expect("both can be written");
            outputs.write(&run).expect("both can be written");
            assert_eq!(std::fs::read_to_string(&json).expect("the entry exists"), run.to_json());
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn replaced_file_keeps_its_owner() {
        let at = tempfile::tempdir().expect("a directory");
        let file = at.path().join("run.json");
        std::fs::write(&file, "before").expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("our own");
        std::os::unix::fs::chown(&file, Some(4711), Some(4712)).expect("root may give it away");
        replace(&file, "after").expect("writing succeeds");
        let there = file.metadata().expect("the entry exists");
        assert_eq!(
            (there.uid(), there.gid(), there.permissions().mode() & 0o777),
            (4711, 4712, 0o640)
        );
        assert_eq!(std::fs::read_to_string(&file).expect("the entry exists"), "after");
        assert_eq!(
            std::fs::read_dir(at.path()).expect("the entry exists").count(),
            1,
            "no part is left"
        );
    }
}
