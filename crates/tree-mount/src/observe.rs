//! Reports each request and each tree event to the observer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuser::Request;
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::error::OpError;
use crate::observer::{Caller, Failure, Observation, Operation, Recorded, TreeEvent};
use crate::request::{KernelRequest, ObserverState, OpenFile};
use crate::state::MountState;

impl MountState {
    /// What is asked here, by whom.
    pub(crate) fn asked(&self, request: &Request, operation: Operation, opcode: &'static str, id: NodeId) -> KernelRequest {
        // Who opens is told when it is closed.
        let is_told = |observed: &ObserverState| observed.observer.wants(operation) || operation == Operation::Open;
        let caller = self.observed.as_ref().filter(|observed| is_told(observed)).map(|_| {
            let pid = Some(request.pid()).filter(|pid| *pid != 0);
            Caller { uid: request.uid(), gid: request.gid(), pid, login: pid.and_then(login) }
        });
        KernelRequest { caller, operation, opcode, id, name: None, found: None, executes: false, offset: None }
    }

    /// It was done, and its answer may leave when this is.
    pub(crate) async fn observe_done(&self, asked: &KernelRequest, read: Option<u64>) {
        if let Some(kept) = self.tell(asked, None, read) {
            kept.await;
        }
    }

    /// It was not done.
    pub(crate) fn observe_failed(&self, asked: &KernelRequest, error: &OpError) -> Option<Recorded> {
        self.observed.as_ref()?;
        self.tell(asked, Some(Failure { errno: error.errno().code(), why: &error.to_string() }), None)
    }

    /// The name is proven not to be there.
    pub(crate) async fn observe_missing(&self, asked: &KernelRequest) {
        let failure = Failure { errno: ENOENT, why: "proven not to be there" };
        if let Some(kept) = self.tell(asked, Some(failure), None) {
            kept.await;
        }
    }

    fn tell(&self, asked: &KernelRequest, failure: Option<Failure<'_>>, read: Option<u64>) -> Option<Recorded> {
        let observed = self.observed.as_ref()?;
        let caller = asked.caller.filter(|_| observed.observer.wants(asked.operation))?;
        let KernelRequest { operation, id, found, executes, offset, .. } = *asked;
        let what = ObservationFacts {
            caller,
            operation,
            id,
            name: asked.name.as_deref(),
            found,
            executes,
            offset,
            failure,
            read,
            open: None,
            remark: "",
        };
        self.tell_observer(observed, what)
    }

    fn tell_observer(&self, observed: &ObserverState, what: ObservationFacts<'_>) -> Option<Recorded> {
        let volume = self.volume_of(what.id);
        let mut paths = self.table.paths(what.id);
        if let Some(name) = what.name {
            paths.iter_mut().for_each(|path| {
                path.push(b'/');
                path.extend_from_slice(name);
            });
        }
        let (path, other_paths) = paths.split_first().map_or((&[][..], &[][..]), |(first, others)| (&**first, others));
        let ObservationFacts { caller, operation, id, name, found, executes, offset, failure, read, open, remark } = what;
        let tree = volume.as_ref().map_or("", |volume| volume.label());
        observed.observer.observe(&Observation {
            caller,
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
    pub(crate) fn begin_open(&self, asked: &KernelRequest, passes_through: bool) -> u64 {
        let (Some(observed), Some(caller)) = (&self.observed, asked.caller) else { return 0 };
        let handle = observed.next.fetch_add(1, Ordering::Relaxed);
        let (read, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = OpenFile { caller, id: asked.id, since: Instant::now(), read, failed, passes_through };
        observed.open_files.lock().insert(handle, Arc::new(open));
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
        let open = observed.open_files.lock().remove(&handle);
        if let Some(open) = open {
            self.tell_closed(observed, &open, "");
        }
    }

    /// The mount ends: whatever is open is told of now.
    pub(crate) fn end_all_opens(&self) {
        let Some(observed) = &self.observed else { return };
        let open_files = std::mem::take(&mut *observed.open_files.lock());
        for open in open_files.into_values() {
            self.tell_closed(observed, &open, "still open when the mount ended");
        }
    }

    fn tell_closed(&self, observed: &ObserverState, open: &OpenFile, why: &str) {
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
        let what = ObservationFacts {
            caller: open.caller,
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
    pub(crate) fn observe_event(&self, tree_event: &TreeEvent<'_>) {
        if let Some(observed) = &self.observed {
            observed.observer.tree_event(tree_event);
        }
    }
}

/// What is told, but for what the table knows.
struct ObservationFacts<'a> {
    caller: Caller,
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

const ENOENT: i32 = 2;
