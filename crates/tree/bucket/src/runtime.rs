use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

/// Call before a sandbox restricts the caller: the threads need the network.
pub(crate) fn start() -> io::Result<()> {
    if RUNTIME.get().is_none() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).max(THREADS_MIN);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("bucket")
            .enable_all()
            .build()?;
        let _ = RUNTIME.set(runtime);
    }
    Ok(())
}

pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = io::Result<T>> + Send + 'static,
) -> Task<T> {
    let (send, receive) = sync_channel(1);
    let runtime = RUNTIME.get().expect("a database is opened after the start");
    runtime.spawn(async move { drop(send.send(task.await)) });
    Task(Mutex::new(receive))
}

pub(crate) fn run<T: Send + 'static>(
    task: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    spawn(task).wait()
}

/// No sandbox of the caller restricts the thread.
pub(crate) fn run_blocking<T: Send + 'static>(
    function: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    run(async move { tokio::task::spawn_blocking(function).await.map_err(io::Error::other)? })
}

#[derive(Debug)]
pub(crate) struct Task<T>(Mutex<Receiver<io::Result<T>>>);

impl<T> Task<T> {
    pub(crate) fn wait(&self) -> io::Result<T> {
        self.0.lock().recv().unwrap_or_else(|_| {
            Err(io::Error::other("a transfer ended by itself; this is a fault of this program"))
        })
    }
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

const THREADS_MIN: usize = 4;
