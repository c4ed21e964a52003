//! The one point at which who asks, what for and what comes of it are visible together. Records of
//! what was done hang there; nothing of them is known here.
//!
//! The kernel asks less than its users do: modes, owners and access lists it checks by itself, and
//! names, attributes and pages that it has cached it doesn't ask for again. Where somebody
//! observes, it asks at each open, each listing and each symbolic link: see `Face::init`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuser::{OpenFlags, Request};
use parking_lot::Mutex;
use vouch_tree_client::ErrorClass;

use crate::core::Core;
use crate::error::OpError;
use crate::number::NodeId;

/// What the kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A name in a directory.
    Lookup,
    /// Attributes of a file.
    Attributes,
    /// The target of a symbolic link.
    Link,
    /// Names of a directory.
    List,
    /// The value of an extended attribute.
    Xattr,
    /// The names of extended attributes.
    Xattrs,
    /// To use a file's content.
    Open,
    /// Some of it.
    Read,
    /// Where there is some of it.
    Seek,
    /// No more of it.
    Close,
}

/// For whom the kernel asks, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// User (fsuid).
    pub uid: u32,
    /// Group (fsgid).
    pub gid: u32,
    /// Thread, as this process sees it; `None` of the kernel itself, and of who is in another PID
    /// name space.
    pub pid: Option<u32>,
    /// Whom it logged in as (loginuid), where the kernel keeps that and shows it to us; `u32::MAX`
    /// of who never did.
    pub login: Option<u32>,
}

/// An operation, done or refused.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// For whom. Of a close: who opened.
    pub by: Asker,
    /// What.
    pub operation: Operation,
    /// The tree, by its self-certifying name; empty above all trees.
    pub tree: &'a str,
    /// The file, below the mount point: empty for that itself, else it begins with `/`. Where a
    /// file has several names, the first that was looked up.
    pub path: &'a [u8],
    /// The other names by which the kernel knows it.
    pub other_paths: &'a [Vec<u8>],
    /// Its number; none of a name that leads nowhere.
    pub number: Option<u64>,
    /// Of an open: whether to execute it.
    pub executes: bool,
    /// Of a read and a listing: from where on.
    pub offset: Option<u64>,
    /// Of a read and a close: bytes that the kernel was given. What it reads again from its own
    /// cache is nobody's.
    pub read: Option<u64>,
    /// Of a close: how long it was open.
    pub open: Option<Duration>,
    /// Why it was refused; none if it was done.
    pub failure: Option<Failure<'a>>,
    /// Of a close: what else is to be said.
    pub remark: &'a str,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// What the caller gets.
    pub errno: i32,
    /// In words.
    pub why: &'a str,
}

/// What happens to a tree.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// This revision is shown from now on.
    Shown {
        /// The tree, by its self-certifying name.
        tree: &'a str,
        /// The revision.
        revision: u64,
        /// The one before; none of a tree that was not shown.
        before: Option<u64>,
    },
    /// Nothing of it is shown any more.
    Withdrawn {
        /// The tree.
        tree: &'a str,
        /// What kind of reason it was.
        class: ErrorClass,
        /// In words.
        why: &'a str,
    },
    /// It is shown again, as its publisher has published.
    Back {
        /// The tree.
        tree: &'a str,
        /// The revision.
        revision: u64,
    },
    /// A tree can't be shown at all.
    NotOpened {
        /// The tree.
        tree: &'a str,
        /// What kind of reason it was.
        class: ErrorClass,
        /// In words.
        why: &'a str,
    },
}

/// Ready when what was seen is kept, and its answer may leave.
pub type Kept = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sees every operation, in the moment before it is answered.
pub trait Observer: Send + Sync {
    /// Whether it is told of such operations. Asked first, before anything is found out.
    fn wants(&self, operation: Operation) -> bool;

    /// An operation was done, or not. Its answer leaves when what is returned is ready, if anything
    /// is, or is EIO if that takes longer than an operation may. Of a close nobody waits. Must
    /// not wait itself.
    fn seen(&self, seen: &Seen<'_>) -> Option<Kept>;

    /// Something has happened to a tree. Must not wait.
    fn news(&self, news: &News<'_>);
}

/// An observer, and the open files that it will be told the end of.
pub(crate) struct Observed {
    observer: Arc<dyn Observer>,
    opens: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next: AtomicU64,
}

/// A file that somebody has open.
struct OpenFile {
    by: Asker,
    id: NodeId,
    since: Instant,
    read: AtomicU64,
    failed: AtomicU64,
    passes_through: bool,
}

impl Observed {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, opens: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Whether it wants to know what is read of a file: then the kernel must not read it by itself.
    pub(crate) fn counts_reads(&self) -> bool {
        self.observer.wants(Operation::Read) || self.observer.wants(Operation::Close)
    }

    fn open_file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.opens.lock().get(&handle).cloned()
    }
}

/// A request of the kernel: by whom, for what.
#[derive(Clone)]
pub(crate) struct Asked {
    /// None where nobody observes such.
    by: Option<Asker>,
    pub(crate) operation: Operation,
    /// In the log's words.
    pub(crate) word: &'static str,
    pub(crate) id: NodeId,
    /// Of a lookup.
    name: Option<Box<[u8]>>,
    /// Of a lookup, what it has found.
    found: Option<u64>,
    executes: bool,
    offset: Option<u64>,
}

impl Asked {
    pub(crate) fn named(mut self, name: &[u8]) -> Self {
        self.name = self.by.is_some().then(|| name.into());
        self
    }

    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn found(mut self, number: u64) -> Self {
        self.found = Some(number);
        self
    }

    /// As the flags of an open say.
    pub(crate) fn with(mut self, flags: OpenFlags) -> Self {
        self.executes = flags.0 & FMODE_EXEC != 0;
        self
    }
}

impl Core {
    /// What is asked here, by whom.
    pub(crate) fn asked(&self, request: &Request, operation: Operation, word: &'static str, id: NodeId) -> Asked {
        // Who opens is told when it is closed.
        let is_told = |observed: &Observed| observed.observer.wants(operation) || operation == Operation::Open;
        let by = self.observed.as_ref().filter(|observed| is_told(observed)).map(|_| {
            let pid = Some(request.pid()).filter(|pid| *pid != 0);
            Asker { uid: request.uid(), gid: request.gid(), pid, login: pid.and_then(login) }
        });
        Asked { by, operation, word, id, name: None, found: None, executes: false, offset: None }
    }

    /// It was done, and its answer may leave when this is.
    pub(crate) async fn tell_done(&self, asked: &Asked, read: Option<u64>) {
        if let Some(kept) = self.tell(asked, None, read) {
            kept.await;
        }
    }

    /// It was not done.
    pub(crate) fn tell_failed(&self, asked: &Asked, error: &OpError) -> Option<Kept> {
        self.observed.as_ref()?;
        self.tell(asked, Some(Failure { errno: error.errno().code(), why: &error.to_string() }), None)
    }

    /// The name is proven not to be there.
    pub(crate) async fn tell_missing(&self, asked: &Asked) {
        let failure = Failure { errno: ENOENT, why: "proven not to be there" };
        if let Some(kept) = self.tell(asked, Some(failure), None) {
            kept.await;
        }
    }

    fn tell(&self, asked: &Asked, failure: Option<Failure<'_>>, read: Option<u64>) -> Option<Kept> {
        let observed = self.observed.as_ref()?;
        let by = asked.by.filter(|_| observed.observer.wants(asked.operation))?;
        let Asked { operation, id, found, executes, offset, .. } = *asked;
        let what = What { by, operation, id, name: asked.name.as_deref(), found, executes, offset, failure, read, open: None, remark: "" };
        self.tell_observer(observed, what)
    }

    fn tell_observer(&self, observed: &Observed, what: What<'_>) -> Option<Kept> {
        let volume = self.volume_of(what.id);
        let mut paths = self.table.paths(what.id);
        if let Some(name) = what.name {
            paths.iter_mut().for_each(|path| {
                path.push(b'/');
                path.extend_from_slice(name);
            });
        }
        let (path, other_paths) = paths.split_first().map_or((&[][..], &[][..]), |(first, others)| (&**first, others));
        let What { by, operation, id, name, found, executes, offset, failure, read, open, remark } = what;
        let tree = volume.as_ref().map_or("", |volume| volume.label());
        observed.observer.seen(&Seen {
            by,
            operation,
            tree,
            path,
            other_paths,
            number: if name.is_some() { found } else { Some(id.0) },
            executes,
            offset,
            read,
            open,
            failure,
            remark,
        })
    }

    /// A file is open from now on; its handle.
    pub(crate) fn begin_open(&self, asked: &Asked, passes_through: bool) -> u64 {
        let (Some(observed), Some(by)) = (&self.observed, asked.by) else { return 0 };
        let handle = observed.next.fetch_add(1, Ordering::Relaxed);
        let (read, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = OpenFile { by, id: asked.id, since: Instant::now(), read, failed, passes_through };
        observed.opens.lock().insert(handle, Arc::new(open));
        handle
    }

    /// So much of it was given to the kernel; none if it could not be.
    pub(crate) fn count_read(&self, handle: u64, len: Option<u64>) {
        let Some(open) = self.observed.as_ref().and_then(|observed| observed.open_file(handle)) else { return };
        match len {
            Some(len) => open.read.fetch_add(len, Ordering::Relaxed),
            None => open.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// It is open no more.
    pub(crate) fn end_open(&self, handle: u64) {
        let Some(observed) = &self.observed else { return };
        let open = observed.opens.lock().remove(&handle);
        if let Some(open) = open {
            self.tell_closed(observed, &open, "");
        }
    }

    /// The mount ends: whatever is open is told of now.
    pub(crate) fn end_all_opens(&self) {
        let Some(observed) = &self.observed else { return };
        let opens = std::mem::take(&mut *observed.opens.lock());
        for open in opens.into_values() {
            self.tell_closed(observed, &open, "still open when the mount ended");
        }
    }

    fn tell_closed(&self, observed: &Observed, open: &OpenFile, why: &str) {
        if !observed.observer.wants(Operation::Close) {
            return;
        }
        let mut remarks = Vec::from_iter((!why.is_empty()).then(|| why.to_owned()));
        let failed = open.failed.load(Ordering::Relaxed);
        if failed > 0 {
            remarks.push(format!("{failed} reads failed"));
        }
        if open.passes_through {
            remarks.push("read by the kernel by itself, so that bytes are not known".to_owned());
        }
        let what = What {
            by: open.by,
            operation: Operation::Close,
            id: open.id,
            name: None,
            found: None,
            executes: false,
            offset: None,
            failure: None,
            read: (!open.passes_through).then(|| open.read.load(Ordering::Relaxed)),
            open: Some(open.since.elapsed()),
            remark: &remarks.join("; "),
        };
        // Nobody waits for the end of a close.
        drop(self.tell_observer(observed, what));
    }

    /// Something has happened to a tree.
    pub(crate) fn tell_news(&self, news: &News<'_>) {
        if let Some(observed) = &self.observed {
            observed.observer.news(news);
        }
    }
}

/// What is told, but for what the table knows.
struct What<'a> {
    by: Asker,
    operation: Operation,
    id: NodeId,
    name: Option<&'a [u8]>,
    found: Option<u64>,
    executes: bool,
    offset: Option<u64>,
    failure: Option<Failure<'a>>,
    read: Option<u64>,
    open: Option<Duration>,
    remark: &'a str,
}

/// Whom a thread logged in as. It waits for our answer, so that it is still the one that asked,
/// unless it was killed meanwhile.
fn login(pid: u32) -> Option<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?.trim().parse().ok()
}

/// Linux sets this flag, which no caller of open(2) can, where a file is opened to be executed.
const FMODE_EXEC: i32 = 0x20;

const ENOENT: i32 = 2;
