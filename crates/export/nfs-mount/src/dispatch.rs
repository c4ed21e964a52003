//! From requests of the kernel to operations, each in a task of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::Notify;

use crate::caller::is_being_killed;
use crate::error::Result;
use crate::fuse::{Header, Opcode, Record, Request};
use crate::mount::{Mount, Pending};
use crate::report::Counters;

impl Mount {
    /// Serves until an unmount. ECONNABORTED: the kernel has ended the connection.
    pub(crate) async fn serve(self: &Arc<Self>) -> io::Result<()> {
        let len = self.request_len_max();
        let mut buffer = vec![0; len];
        while let Some(read) = self.device.read(&mut buffer).await? {
            // Small requests are copied out. A large one takes the buffer along.
            let bytes = match read < len / 2 {
                true => buffer[..read].to_vec(),
                false => {
                    let mut taken = std::mem::replace(&mut buffer, vec![0; len]);
                    taken.truncate(read);
                    taken
                }
            };
            if let Some(request) = Request::new(bytes) {
                self.start(request);
            }
        }
        Ok(())
    }

    fn request_len_max(&self) -> usize {
        self.options.io_len_max as usize + REQUEST_HEAD_LEN_MAX
    }

    fn start(self: &Arc<Self>, request: Request) {
        let Header { unique, node, pid, .. } = request.header;
        match request.opcode {
            Some(Opcode::Forget) => {
                self.inodes.forget(node, request.fields().u64().unwrap_or(0));
            }
            Some(Opcode::BatchForget) => self.forget_many(&request),
            Some(Opcode::Interrupt) => self.interrupt(request.fields().u64().unwrap_or(0)),
            Some(Opcode::Destroy) => drop(self.device.reply(unique, &[])),
            // The kernel does not ask again.
            None => drop(self.device.error(unique, Errno::NOSYS)),
            Some(opcode) => {
                Counters::add(&self.counters.requests);
                let interrupt = Arc::new(Notify::new());
                let waits_for_lock = opcode == Opcode::Setlkw;
                let pending = Pending { pid, waits_for_lock, interrupt: interrupt.clone() };
                self.pending.lock().insert(unique, pending);
                let mount = self.clone();
                tokio::spawn(async move {
                    mount.answer(opcode, request, &interrupt).await;
                    mount.pending.lock().remove(&unique);
                });
            }
        }
    }

    async fn answer(self: &Arc<Self>, opcode: Opcode, request: Request, interrupt: &Notify) {
        let unique = request.header.unique;
        let outcome = match opcode {
            Opcode::Read => match self.read(&request).await {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Opcode::Write => self.write(request).await,
            Opcode::Open | Opcode::Create => {
                let opened = match opcode {
                    Opcode::Open => self.open(&request).await,
                    _ => self.create(&request).await,
                };
                match opened {
                    Ok((record, number)) => {
                        if !self.device.reply(unique, record.as_bytes()) {
                            self.close_number(number).await;
                        }
                        return;
                    }
                    Err(error) => Err(error),
                }
            }
            _ => self.answer_other(opcode, &request, interrupt).await,
        };
        if opcode.changes_files() {
            self.count_change();
        }
        match outcome {
            Ok(record) => self.device.reply(unique, record.as_bytes()),
            Err(error) => {
                if !matches!(error, Errno::NOENT | Errno::NOSYS) {
                    Counters::add(&self.counters.failed);
                }
                self.device.error(unique, error)
            }
        };
    }

    async fn answer_other(
        self: &Arc<Self>,
        opcode: Opcode,
        request: &Request,
        interrupt: &Notify,
    ) -> Result<Record> {
        match opcode {
            Opcode::Lookup => self.lookup(request).await,
            Opcode::Getattr => self.getattr(request).await,
            Opcode::Setattr => self.setattr(request).await,
            Opcode::Readlink => self.readlink(request).await,
            Opcode::Symlink => self.symlink(request).await,
            Opcode::Mknod => self.mknod(request).await,
            Opcode::Mkdir => self.mkdir(request).await,
            Opcode::Unlink | Opcode::Rmdir => self.unlink(request).await,
            Opcode::Rename => self.rename(request, false).await,
            Opcode::Rename2 => self.rename(request, true).await,
            Opcode::Link => self.link(request).await,
            Opcode::Statfs => self.statfs(request).await,
            Opcode::Release => self.release(request).await,
            Opcode::Flush => self.flush_file(request).await,
            Opcode::Fsync => self.fsync(request).await,
            Opcode::Setxattr => self.setxattr(request).await,
            Opcode::Getxattr => self.getxattr(request).await,
            Opcode::Listxattr => self.listxattr(request).await,
            Opcode::Removexattr => self.removexattr(request).await,
            Opcode::Opendir => self.opendir(request).await,
            Opcode::Readdir => self.readdir(request, false).await,
            Opcode::Readdirplus => self.readdir(request, true).await,
            Opcode::Releasedir => self.releasedir(request),
            Opcode::Getlk => self.getlk(request).await,
            Opcode::Setlk => self.setlk(request, false, interrupt).await,
            Opcode::Setlkw => self.setlk(request, true, interrupt).await,
            Opcode::Access => self.access(request).await,
            Opcode::Fallocate => self.fallocate(request).await,
            Opcode::Lseek => self.lseek(request).await,
            Opcode::CopyFileRange => self.copy_file_range(request).await,
            // Changes of directories are durable when the server answers (RFC 8881 §1.9.3.4).
            Opcode::Fsyncdir => Ok(Record::default()),
            Opcode::Syncfs => {
                self.flush_and_wait().await;
                Ok(Record::default())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn forget_many(&self, request: &Request) {
        let mut fields = request.fields();
        let (count, _) = (fields.u32().unwrap_or(0), fields.u32());
        for _ in 0..count {
            let (Some(node), Some(lookups)) = (fields.u64(), fields.u64()) else { return };
            self.inodes.forget(node, lookups);
        }
    }

    /// A signal for the process of a request. As in Linux's client, only a fatal one ends a request,
    /// unless it waits for a lock.
    fn interrupt(self: &Arc<Self>, unique: u64) {
        let (pid, ends) = match self.pending.lock().get(&unique) {
            Some(pending) if pending.waits_for_lock => return pending.interrupt.notify_one(),
            Some(pending) => (pending.pid, is_being_killed(pending.pid)),
            None => return,
        };
        if ends {
            self.device.error(unique, Errno::INTR);
            return;
        }
        // The kernel announces the first signal only.
        let mount = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(FATAL_POLL).await;
                if !mount.pending.lock().contains_key(&unique) {
                    return;
                }
                if is_being_killed(pid) {
                    mount.device.error(unique, Errno::INTR);
                    return;
                }
            }
        });
    }
}

/// The kernel wants room for the headers of a WRITE, and 8 KiB at least.
const REQUEST_HEAD_LEN_MAX: usize = 8192;

const FATAL_POLL: Duration = Duration::from_millis(500);
