use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fuser::Request;
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::error::OpError;
use crate::observer::{Caller, Failure, Observation, Operation, Recorded, TreeEvent};
use crate::request::{KernelRequest, ObserverState, OpenFile};
use crate::state::MountState;

impl MountState {
    pub(crate) fn request(
        &self,
        request: &Request,
        operation: Operation,
        opcode: &'static str,
        id: NodeId,
    ) -> KernelRequest {
        // A close needs the caller of its open.
        let is_wanted = |observed: &ObserverState| {
            observed.observer.wants(operation) || operation == Operation::Open
        };
        let caller = self.observed.as_ref().filter(|observed| is_wanted(observed)).map(|_| {
            let pid = Some(request.pid()).filter(|pid| *pid != 0);
            Caller { uid: request.uid(), gid: request.gid(), pid, login: pid.and_then(login) }
        });
        KernelRequest {
            caller,
            operation,
            opcode,
            id,
            name: None,
            found: None,
            executes: false,
            offset: None,
        }
    }

    pub(crate) async fn observe_done(&self, request: &KernelRequest, read: Option<u64>) {
        self.request_counts.count(request.operation, false);
        if let Some(recorded) = self.report(request, None, read) {
            recorded.await;
        }
    }

    pub(crate) fn observe_failed(
        &self,
        request: &KernelRequest,
        error: &OpError,
    ) -> Option<Recorded> {
        self.request_counts.count(request.operation, error.is_logged());
        self.observed.as_ref()?;
        self.report(
            request,
            Some(Failure { errno: error.errno().code(), why: &error.to_string() }),
            None,
        )
    }

    pub(crate) async fn observe_missing(&self, request: &KernelRequest) {
        self.request_counts.count(request.operation, false);
        let failure = Failure { errno: ENOENT, why: "proven missing" };
        if let Some(recorded) = self.report(request, Some(failure), None) {
            recorded.await;
        }
    }

    fn report(
        &self,
        request: &KernelRequest,
        failure: Option<Failure<'_>>,
        read: Option<u64>,
    ) -> Option<Recorded> {
        let observed = self.observed.as_ref()?;
        let caller = request.caller.filter(|_| observed.observer.wants(request.operation))?;
        let KernelRequest { operation, id, found, executes, offset, .. } = *request;
        let observation = Observation {
            executes,
            offset,
            failure,
            read,
            number: found,
            ..Observation::new(caller, operation)
        };
        self.report_to_observer(observed, id, request.name.as_deref(), observation)
    }

    /// Adds the tree and the paths. Without `name`, the file is `id` itself.
    fn report_to_observer(
        &self,
        observed: &ObserverState,
        id: NodeId,
        name: Option<&[u8]>,
        observation: Observation<'_>,
    ) -> Option<Recorded> {
        let volume = self.volume_of(id);
        let mut paths = self.table.paths(id);
        if let Some(name) = name {
            paths.iter_mut().for_each(|path| {
                path.push(b'/');
                path.extend_from_slice(name);
            });
        }
        let (path, other_paths) =
            paths.split_first().map_or((&[][..], &[][..]), |(first, others)| (&**first, others));
        let tree = volume.as_ref().map_or("", |volume| volume.label());
        let number = if name.is_some() { observation.number } else { Some(id.0) };
        observed.observer.observe(&Observation { tree, path, other_paths, number, ..observation })
    }

    pub(crate) fn start_open_file(&self, request: &KernelRequest, passes_through: bool) -> u64 {
        let (Some(observed), Some(caller)) = (&self.observed, request.caller) else { return 0 };
        let handle = observed.next.fetch_add(1, Ordering::Relaxed);
        let (read, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = OpenFile {
            caller,
            id: request.id,
            since: Instant::now(),
            read,
            failed,
            passes_through,
        };
        observed.insert(handle, open);
        handle
    }

    pub(crate) fn count_read(&self, handle: u64, len: Option<u64>) {
        let Some(open) = self.observed.as_ref().and_then(|observed| observed.open_file(handle))
        else {
            return;
        };
        match len {
            Some(len) => open.read.fetch_add(len, Ordering::Relaxed),
            None => open.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    pub(crate) fn end_open_file(&self, handle: u64) {
        let Some(observed) = &self.observed else { return };
        let open = observed.remove(handle);
        if let Some(open) = open {
            self.report_close(observed, &open, "");
        }
    }

    pub(crate) fn end_all_open_files(&self) {
        let Some(observed) = &self.observed else { return };
        let open_files = std::mem::take(&mut *observed.open_files.lock());
        for open in open_files.into_values() {
            self.report_close(observed, &open, "still open when the mount ended");
        }
    }

    fn report_close(&self, observed: &ObserverState, open: &OpenFile, why: &str) {
        if !observed.observer.wants(Operation::Close) {
            return;
        }
        let mut remarks = Vec::from_iter((!why.is_empty()).then(|| why.to_owned()));
        let failed = open.failed.load(Ordering::Relaxed);
        if failed > 0 {
            remarks.push(format!("{failed} reads failed"));
        }
        if open.passes_through {
            remarks
                .push("read by the kernel directly, so the number of bytes is unknown".to_owned());
        }
        let remark = remarks.join("; ");
        let observation = Observation {
            read: (!open.passes_through).then(|| open.read.load(Ordering::Relaxed)),
            open: Some(open.since.elapsed()),
            remark: &remark,
            ..Observation::new(open.caller, Operation::Close)
        };
        drop(self.report_to_observer(observed, open.id, None, observation));
    }

    pub(crate) fn observe_event(&self, tree_event: &TreeEvent<'_>) {
        if let Some(observed) = &self.observed {
            observed.observer.tree_event(tree_event);
        }
    }
}

/// Login uid. The thread waits for our answer, so it still exists.
fn login(pid: u32) -> Option<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?.trim().parse().ok()
}

const ENOENT: i32 = 2;
