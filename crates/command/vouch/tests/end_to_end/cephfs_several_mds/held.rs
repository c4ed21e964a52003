//! Open files with locks, one in each directory.

use vouch_nfs4::op::LockType;
use vouch_nfs4_client::Lock;

use super::*;
use crate::lock_holder::until_answered;

pub(super) struct Held {
    files: Vec<HeldFile>,
    content: Vec<u8>,
}

struct HeldFile {
    directory: Filehandle,
    file: OpenFile,
    lock: Lock,
}

impl Held {
    pub(super) async fn create(client: &Client, directories: &[Filehandle]) -> Held {
        let mut files = Vec::new();
        for directory in directories {
            let mut file = create_in(client, directory, NAME).await.expect("a new file");
            let lock = client
                .lock(&mut file, OWNER, LockType::Write, 0, LOCKED_LEN)
                .await
                .expect("answered")
                .expect("locked");
            files.push(HeldFile { directory: *directory, file, lock });
        }
        Held { files, content: Vec::new() }
    }

    pub(super) async fn reclaim(&mut self, client: &Client) {
        for held in &mut self.files {
            client.reclaim_open(&mut held.file).await.expect("the open is reclaimed by its handle");
            let lock =
                client.reclaim_lock(&mut held.file, OWNER, LockType::Write, 0, LOCKED_LEN).await;
            held.lock = lock.expect("the lock is reclaimed");
        }
        client.reclaim_complete().await.expect("complete");
    }

    /// The handles work, earlier writes are there, and the locks keep another client out.
    pub(super) async fn check(&mut self, client: &Client, address: SocketAddr) {
        let rival = connect(address, 2, "rival", 0).await.expect("connected");
        let at = self.content.len() as u64;
        self.content.extend(b"line\n");
        for held in &mut self.files {
            let before = client.read(&held.file, 0, 1000).await.expect("readable by its handle").0;
            assert_eq!(before, self.content[..at as usize]);
            client.write(&held.file, at, b"line\n", StableHow::FileSync).await.expect("written");
            let mut same = until_answered(|| {
                rival.open(&held.directory, NAME.as_bytes(), ShareAccess::BOTH, None)
            })
            .await;
            assert_eq!(same.handle, held.file.handle);
            let granted = rival
                .lock(&mut same, b"rival", LockType::Write, 0, LOCKED_LEN)
                .await
                .expect("answered");
            assert!(granted.is_err(), "the lock is granted twice");
            assert_eq!(rival.read(&same, 0, 1000).await.expect("readable").0, self.content);
            client
                .unlock(&held.file, &mut held.lock, 0, LOCKED_LEN)
                .await
                .expect("the lock is valid");
            let lock = client.lock(&mut held.file, OWNER, LockType::Write, 0, LOCKED_LEN).await;
            held.lock = lock.expect("answered").expect("locked again");
            rival.close_file(same).await.expect("closed");
        }
        self.move_between_ranks(client).await;
    }

    /// By a rename to the other directory and a link back.
    async fn move_between_ranks(&self, client: &Client) {
        for (held, other) in self.files.iter().zip(self.files.iter().rev()) {
            client
                .rename(&held.directory, NAME.as_bytes(), &other.directory, b"moved")
                .await
                .expect("renamed");
            client.link(&held.file.handle, &held.directory, NAME.as_bytes()).await.expect("linked");
            client.remove(&other.directory, b"moved").await.expect("removed");
        }
    }
}

pub(super) const NAME: &str = "held";
const OWNER: &[u8] = b"holder";
const LOCKED_LEN: u64 = 100;
