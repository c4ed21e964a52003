//! Workers that create, rename and link files in both directories. No call needs both MDS: the rollback
//! of such a rename crashes ceph-mds 16.2.15 (`Server::do_rename_rollback`).

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

use super::*;

pub(super) struct Load {
    directories: [Filehandle; 2],
    progress: Arc<Progress>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Progress {
    rounds: [AtomicUsize; WORKERS],
    must_end: AtomicBool,
}

impl Progress {
    fn rounds(&self) -> [usize; WORKERS] {
        self.rounds.each_ref().map(|rounds| rounds.load(Ordering::Acquire))
    }
}

impl Load {
    pub(super) fn start(client: &Client, directories: [Filehandle; 2]) -> Load {
        let progress = Arc::new(Progress::default());
        let start =
            |worker| tokio::spawn(work(client.clone(), directories, worker, progress.clone()));
        let workers = (0..WORKERS).map(start).collect();
        Load { directories, progress, workers }
    }

    /// Two more of each worker.
    pub(super) async fn wait_for_rounds(&self) {
        let before = self.progress.rounds();
        let deadline = Instant::now() + STEP_MAX;
        while (0..WORKERS).any(|worker| self.progress.rounds()[worker] < before[worker] + 2) {
            let is_running = self.workers.iter().all(|worker| !worker.is_finished());
            assert!(
                is_running && Instant::now() < deadline,
                "a worker does not go on: {before:?}, {:?}",
                self.progress.rounds()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every acknowledged change is there, and nothing else.
    pub(super) async fn finish(mut self, client: &Client) {
        self.progress.must_end.store(true, Ordering::Release);
        for worker in std::mem::take(&mut self.workers) {
            worker.await.expect("no panic");
        }
        let rounds = self.progress.rounds();
        println!("rounds of each worker: {rounds:?}");
        for (at, directory) in self.directories.iter().enumerate() {
            let mut expected: BTreeSet<String> = [held::NAME, FIRST_FILE].map(str::to_owned).into();
            expected.extend((at == 1).then(|| WAITING.to_owned()));
            for (worker, &rounds) in rounds.iter().enumerate() {
                expected.extend(
                    (0..rounds).flat_map(|round| [renamed(worker, round), linked(worker, round)]),
                );
            }
            let entries = client.list(directory, 1_000_000).await.expect("a directory");
            let names: BTreeSet<_> = entries
                .into_iter()
                .map(|entry| String::from_utf8(entry.name).expect("text"))
                .collect();
            assert_eq!(names, expected, "in directory {at}");
        }
        for (worker, &rounds) in rounds.iter().enumerate() {
            for round in 0..rounds {
                self.check_file(client, worker, round).await;
            }
        }
    }

    async fn check_file(&self, client: &Client, worker: usize, round: usize) {
        for directory in &self.directories {
            let (name, link) = (renamed(worker, round), linked(worker, round));
            let file = client
                .open(directory, name.as_bytes(), ShareAccess::READ, None)
                .await
                .expect("opened");
            assert_eq!(client.read(&file, 0, 1000).await.expect("read").0, name.as_bytes());
            let same = client
                .open(directory, link.as_bytes(), ShareAccess::READ, None)
                .await
                .expect("opened");
            assert_eq!(file.handle, same.handle, "{link} is not {name}");
            client.close_file(same).await.expect("closed");
            client.close_file(file).await.expect("closed");
        }
    }
}

fn renamed(worker: usize, round: usize) -> String {
    format!("file-{worker}-{round}")
}

fn linked(worker: usize, round: usize) -> String {
    format!("link-{worker}-{round}")
}

/// Every other worker begins with the second directory.
async fn work(
    client: Client,
    directories: [Filehandle; 2],
    worker: usize,
    progress: Arc<Progress>,
) {
    for round in 0.. {
        if progress.must_end.load(Ordering::Acquire) {
            return;
        }
        let name = renamed(worker, round);
        for at in [worker % 2, (worker + 1) % 2] {
            let (directory, created) = (&directories[at], format!("new-{worker}"));
            let file = create_in(&client, directory, &created).await.expect("created");
            client.write(&file, 0, name.as_bytes(), StableHow::FileSync).await.expect("written");
            client
                .rename(directory, created.as_bytes(), directory, name.as_bytes())
                .await
                .expect("renamed");
            client
                .link(&file.handle, directory, linked(worker, round).as_bytes())
                .await
                .expect("linked");
            client.close_file(file).await.expect("closed");
        }
        progress.rounds[worker].store(round + 1, Ordering::Release);
    }
}

const WORKERS: usize = 6;
