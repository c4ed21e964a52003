mod image;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use tokio::task::JoinSet;
use vouch_tree::{Content, Inode};
use vouch_tree_client::{Position, Tree};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::copy_out::{CopyOptions, EntryInDirectory};
use crate::exit::{At as _, Failure, Outcome};
use crate::revision_options::RevisionArgs;
use crate::tree_path::{OpenTree, TreePath};
use crate::{copy_out, interrupt, output, progress};
use vouch_daemon::printable::printable;

/// Copy a file or a directory out of a published tree, or make an image of it.
///
/// Keeps mode, owner (as root), times, extended attributes, holes, hard and symbolic links and
/// special files, as far as permitted. Set-id bits, file capabilities and device nodes are left out
/// unless --suid and --dev ask for them. The copy gets its name when it is complete.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch get @pub.example.org,HOSTID/bin/tool .\n  vouch get @pub.example.org,HOSTID/data /scratch/data --revision 12\n  vouch get @pub.example.org,HOSTID --oci oci-archive:tools.tar:tools\n\n\
                  Into an existing directory the copy goes under its own name; else DEST is its name, and must not exist yet."
)]
pub(crate) struct Args {
    /// Tree and path.
    #[arg(value_name = "NAME[/PATH]")]
    path: OsString,
    /// Destination.
    #[arg(value_name = "DEST", required_unless_present = "oci")]
    dest: Option<PathBuf>,
    #[command(flatten)]
    image: image::ImageArgs,
    #[command(flatten)]
    revision: RevisionArgs,
    /// Do not keep owners, even as root, nor the rights tied to them: set-id bits, and the
    /// attributes security.* (capabilities) and trusted.*.
    #[arg(long)]
    no_owner: bool,
    /// Keep set-id bits of files, and the attributes security.* (capabilities, labels) and trusted.*:
    /// this trusts the publisher with privileges.
    #[arg(long, conflicts_with = "no_owner")]
    suid: bool,
    /// Create device nodes.
    #[arg(long)]
    dev: bool,
    /// Do not keep extended attributes.
    #[arg(long)]
    no_xattrs: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    if let Some(place) = &args.image.oci {
        return image::run(&args, place, global);
    }
    let path = TreePath::parse(&args.path)?;
    let dest = args.dest.as_deref().ok_or_else(|| Failure::usage("DEST", "is missing"))?;
    let dest = destination(dest, &path)?;
    copy_out::allow_deep_trees();
    let partial = partial_name(&dest);
    let of_duty = partial.clone();
    let duty = interrupt::on_interrupt(move || copy_out::remove(&of_duty));
    let copied = client_options::block_on(copy(&args, &path, &partial, global));
    let report = copied.and_then(|report| put(&partial, &dest).at(dest.display()).map(|()| report));
    drop(duty);
    match report {
        Ok(report) if args.json => output::json(&report),
        Ok(report) => report.print(),
        Err(failure) => {
            copy_out::remove(&partial);
            if failure.is_full_disk() {
                let above = dest
                    .parent()
                    .filter(|above| !above.as_os_str().is_empty())
                    .unwrap_or(Path::new("."));
                return Err(failure.cure(format_args!(
                    "free space in the file system of {}, or choose another destination",
                    above.display()
                )));
            }
            Err(failure)
        }
    }
}

/// Fails if the copy's name exists.
fn destination(dest: &Path, path: &TreePath) -> Outcome<PathBuf> {
    if dest == Path::new("-") {
        return Err(Failure::usage("-", "is no name for a copy")
            .cure("`vouch cat` writes to standard output; ./- is a file of this name"));
    }
    let dest = match path.last() {
        Some(name) if dest.is_dir() => dest.join(std::ffi::OsStr::from_bytes(name)),
        _ => dest.to_owned(),
    };
    output::require_new(&dest)?;
    Ok(dest)
}

fn put(partial: &Path, dest: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, partial, CWD, dest, RenameFlags::NOREPLACE) {
        // Some file systems can't refuse to replace.
        Err(Errno::INVAL | Errno::NOSYS) if dest.symlink_metadata().is_err() => {
            std::fs::rename(partial, dest)
        }
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST.into()),
        done => Ok(done?),
    }
}

fn partial_name(dest: &Path) -> PathBuf {
    let mut name = OsString::from(".vouch-get-");
    name.push(std::process::id().to_string());
    match dest.parent() {
        Some(parent) => parent.join(name),
        None => name.into(),
    }
}

async fn copy(args: &Args, path: &TreePath, partial: &Path, global: &Global) -> Outcome<Report> {
    let started = Instant::now();
    let client = args.client.client().await?;
    let mut open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
    let inode = open.enter(&path.path).await?;
    let keep = CopyOptions {
        owner: !args.no_owner && rustix::process::geteuid().is_root(),
        xattrs: !args.no_xattrs,
        privileges: args.suid,
        devices: args.dev,
    };
    let job = Arc::new(Job {
        tree: open.tree.clone(),
        keep,
        counts: Counts::default(),
        bar: progress::spinner(global, "copying"),
    });
    let above = copy_out::open_directory(
        partial.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )?;
    let top = EntryInDirectory {
        dir: Arc::new(above),
        name: partial.file_name().unwrap_or_default().as_bytes().to_vec(),
        shown: path.path.clone(),
    };
    copy_tree(&job, top, inode).await?;
    job.bar.finish_and_clear();
    client.flush().await;
    let counts = &job.counts;
    Ok(Report {
        revision: open.revision.number(),
        entries: counts.entries.load(Ordering::Relaxed),
        bytes: counts.bytes.load(Ordering::Relaxed),
        not_kept: counts.not_kept.load(Ordering::Relaxed),
        left_out: counts.left_out.load(Ordering::Relaxed),
        opaque: counts.opaque.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
    })
}

struct Job {
    tree: Arc<Tree>,
    keep: CopyOptions,
    counts: Counts,
    bar: ProgressBar,
}

#[derive(Default)]
struct Counts {
    entries: AtomicU64,
    bytes: AtomicU64,
    not_kept: AtomicU64,
    left_out: AtomicU64,
    opaque: AtomicU64,
}

impl Job {
    fn count(&self, written: copy_out::Written) {
        let entries = self.counts.entries.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.counts.bytes.fetch_add(written.bytes, Ordering::Relaxed) + written.bytes;
        self.counts.not_kept.fetch_add(written.not_kept, Ordering::Relaxed);
        self.counts.left_out.fetch_add(written.left_out, Ordering::Relaxed);
        if entries.is_multiple_of(64) || written.bytes > 0 {
            self.bar.set_message(format!("{entries} entries, {}", output::bytes(bytes)));
        }
    }
}

/// The list is on the heap, since a tree may be deeper than the stack.
enum Step {
    Enter(EntryInDirectory, Inode),
    Leave(EntryInDirectory, Arc<OwnedFd>, Inode),
}

async fn copy_tree(job: &Arc<Job>, top: EntryInDirectory, inode: Inode) -> Outcome {
    let mut steps = vec![Step::Enter(top, inode)];
    let mut links: HashMap<u64, EntryInDirectory> = HashMap::new();
    let mut files = JoinSet::new();
    while let Some(step) = steps.pop() {
        match step {
            Step::Enter(place, inode) if inode.is_directory() => {
                let dir = Arc::new(place.make_directory()?);
                steps.push(Step::Leave(place.clone(), dir.clone(), inode.clone()));
                enter(job, &place, &inode, &dir, &mut steps, &mut links, &mut files).await?;
            }
            Step::Enter(place, inode) => {
                start_file(job, place, inode, &mut links, &mut files).await?
            }
            Step::Leave(place, dir, inode) => {
                while let Some(done) = files.join_next().await {
                    finished(done)?;
                }
                job.count(place.metadata(&dir, &job.tree, &inode, job.keep).await?);
            }
        }
    }
    while let Some(done) = files.join_next().await {
        finished(done)?;
    }
    Ok(())
}

async fn enter(
    job: &Arc<Job>,
    place: &EntryInDirectory,
    inode: &Inode,
    dir: &Arc<OwnedFd>,
    steps: &mut Vec<Step>,
    links: &mut HashMap<u64, EntryInDirectory>,
    files: &mut JoinSet<Outcome>,
) -> Outcome {
    if matches!(inode.content, Content::Directory { opaque: true, .. }) {
        job.counts.opaque.fetch_add(1, Ordering::Relaxed);
        tracing::info!(path = %place, "the names of an opaque directory are hidden and left out");
        return Ok(());
    }
    let mut position = Position::Start;
    loop {
        let page = job.tree.list(inode, position).await?;
        for entry in page.entries() {
            let below = place.below(dir, entry.name.as_bytes());
            if entry.inode.is_directory() {
                steps.push(Step::Enter(below, entry.inode.clone()));
            } else {
                start_file(job, below, entry.inode.clone(), links, files).await?;
            }
        }
        if page.last {
            return Ok(());
        }
        position = page.next();
    }
}

async fn start_file(
    job: &Arc<Job>,
    place: EntryInDirectory,
    inode: Inode,
    links: &mut HashMap<u64, EntryInDirectory>,
    files: &mut JoinSet<Outcome>,
) -> Outcome {
    if inode.link_group != 0 {
        if let Some(first) = links.get(&inode.link_group) {
            while let Some(done) = files.join_next().await {
                finished(done)?;
            }
            place.link_to(first)?;
            job.count(copy_out::Written::default());
            return Ok(());
        }
        links.insert(inode.link_group, place.clone());
    }
    if files.len() >= FILES_MAX
        && let Some(done) = files.join_next().await
    {
        finished(done)?;
    }
    let job = job.clone();
    files.spawn(async move {
        let written = place.write(&job.tree, &inode, job.keep).await?;
        job.count(written);
        Ok(())
    });
    Ok(())
}

fn finished(done: Result<Outcome, tokio::task::JoinError>) -> Outcome {
    done.unwrap_or_else(|error| Err(Failure::new("copying", std::io::Error::other(error))))
}

/// Enough to fill a fast link with small files.
const FILES_MAX: usize = 32;

#[derive(Serialize)]
struct Report {
    revision: u64,
    entries: u64,
    bytes: u64,
    /// Owners, attributes and devices that could not be set.
    not_kept: u64,
    /// Set-id bits, capabilities and devices without an option for them.
    left_out: u64,
    /// Opaque directories, which are copied empty.
    opaque: u64,
    seconds: f64,
}

impl Report {
    fn print(&self) -> Outcome {
        let mut text = format!(
            "revision {}: {} entries, {} in {:.1} s\n",
            self.revision,
            self.entries,
            output::bytes(self.bytes),
            self.seconds
        );
        if self.not_kept > 0 {
            text.push_str(&format!(
                "{} owners, attributes or special files could not be set; --log-level info lists them\n",
                self.not_kept
            ));
        }
        if self.left_out > 0 {
            text.push_str(&format!("{} set-id bits, capabilities or devices were left out; --suid and --dev keep them\n", self.left_out));
        }
        if self.opaque > 0 {
            text.push_str(&format!(
                "{} opaque directories were copied empty; get files below them by name\n",
                self.opaque
            ));
        }
        output::text(&text)
    }
}

impl std::fmt::Display for EntryInDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printable(&self.shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_destination_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (partial, dest) = (dir.path().join("partial"), dir.path().join("dest"));
        std::fs::write(&partial, "copied").expect("a file");
        std::fs::write(&dest, "another's").expect("a file");
        assert_eq!(
            put(&partial, &dest).expect_err("the entry exists").kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(std::fs::read(&dest).expect("a file"), b"another's");
        std::fs::remove_file(&dest).expect("removed");
        put(&partial, &dest).expect("the name is free");
        assert_eq!(std::fs::read(&dest).expect("a file"), b"copied");
    }
}
