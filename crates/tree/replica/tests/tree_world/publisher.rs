//! The publisher, its revisions, and the mirrors that pull them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use vouch_testkit::{SplitMix64, noise};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Content, FileName, HostId, Inode, Iv, TreeName};
use vouch_tree_client::{Client, PullOptions, TreeOptions, pull_watch};
use vouch_tree_publish::{Assembly, AssemblyError, Options, Progress, Signer, publish_assembly};
use vouch_tree_store::{Database, WriteOptions};

use crate::World;
use crate::machine::Machine;
use crate::reader::ClockOffset;

/// Paths of one or two components.
pub(crate) type Files = BTreeMap<String, Arc<[u8]>>;

/// Serial of the certificate, and number.
pub(crate) type Order = (u64, u64);

/// All that was ever signed.
#[derive(Default)]
pub(crate) struct Published {
    /// Content by the number in its file `attempt`, and the end of its validity.
    pub(crate) attempts: Vec<(Files, u64)>,
    serial: u64,
    /// The newest acknowledged revision, and its signed fsinfo.
    pub(crate) acknowledged: Option<(Order, Arc<[u8]>)>,
}

/// Names the revision in each tree.
pub(crate) const ATTEMPT: &str = "attempt";

pub(crate) const DURATION_S: u32 = 3600;

fn root_key() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

pub(crate) fn name() -> TreeName {
    TreeName::new("publisher", root_key().public().hostid()).expect("a name")
}

fn hostid() -> HostId {
    root_key().public().hostid()
}

impl Published {
    fn next(&mut self, random: &mut SplitMix64, end: u64) -> Files {
        let mut files = self.attempts.last().map_or_else(Files::new, |last| last.0.clone());
        for _ in 0..=random.roll(4) {
            let directory = *random.pick(&["", "", "d/", "e/"]);
            let path = format!("{directory}{}", random.roll(9));
            let len = match random.roll(8) {
                0 => random.roll(200_000),
                1..4 => random.roll(6000),
                _ => random.roll(300),
            };
            if files.remove(&path).is_none() || random.one_in(2) {
                files.insert(path, noise(random.draw(), len as usize).into());
            }
        }
        let number = self.attempts.len().to_string();
        files.insert(ATTEMPT.into(), number.into_bytes().into());
        self.attempts.push((files.clone(), end));
        if self.serial == 0 || random.one_in(10) {
            self.serial += 1;
        }
        files
    }
}

fn inode(content: Content) -> Inode {
    Inode::new(0o644, content)
}

fn build(assembly: &Assembly<'_>, files: &Files) -> Result<Inode, AssemblyError> {
    let name = |text: &str| FileName::parse(text.as_bytes()).expect("a name");
    let mut root = BTreeMap::new();
    let mut directories: BTreeMap<&str, BTreeMap<&str, Inode>> = BTreeMap::new();
    for (path, bytes) in files {
        let file = inode(assembly.file(bytes.len() as u64, &mut &bytes[..])?);
        match path.split_once('/') {
            Some((directory, below)) => {
                directories.entry(directory).or_default().insert(below, file);
            }
            None => drop(root.insert(&path[..], file)),
        }
    }
    for (path, entries) in directories {
        let entries = entries.into_iter().map(|(path, file)| (name(path), file));
        root.insert(path, inode(assembly.directory(entries)?));
    }
    let entries = root.into_iter().map(|(path, file)| (name(path), file));
    Ok(inode(assembly.directory(entries)?))
}

impl World {
    /// Publishes until the machine is restarted.
    pub(crate) async fn publish_often(self: Arc<Self>) {
        loop {
            sleep(Duration::from_millis(self.roll(20_000))).await;
            self.publish();
        }
    }

    /// The next revision. It fails only if the process is killed meanwhile.
    pub(crate) fn publish(&self) {
        let machine = &self.machines[0];
        let (disk, start) = (machine.disk(), self.now());
        let (files, serial, number) = {
            let mut published = self.published.lock();
            let files = published.next(&mut self.random.lock(), start + u64::from(DURATION_S));
            (files, published.serial, published.attempts.len() - 1)
        };
        let publish = || {
            let (db, wait) = (machine.db(), Duration::ZERO);
            let describe = |error: &dyn std::fmt::Display| error.to_string();
            Database::ensure(&disk, &db, hostid(), Iv::from_bytes([3; 32]), wait)
                .map_err(|error| describe(&error))?;
            let options = WriteOptions { disk: Arc::new(disk.clone()), ..WriteOptions::default() };
            let writer = Database::open_write(&db, options).map_err(|error| describe(&error))?;
            let key = SecretKey::from_seed(&[100 + serial as u8; 32]);
            let cert = SigningCert::issue(&root_key(), key.public(), serial, 0, u64::MAX / 2);
            let mut options = Options::new(db, name(), start, DURATION_S);
            (options.threads, options.level) = (1, 1);
            let signer = Signer { key: &key, cert };
            let progress = Progress::default();
            let made = publish_assembly(&writer, &signer, &options, &progress, |assembly| {
                build(assembly, &files)
            });
            let revision = made.map_err(|error| describe(&error))?.revision;
            Ok::<_, String>((revision, writer.head().expect("a head")))
        };
        match publish() {
            Ok((revision, signed)) => {
                self.note(format!("publisher: attempt {number} is ({serial}, {revision})"));
                self.published.lock().acknowledged = Some(((serial, revision), signed));
            }
            Err(error) => {
                self.note(format!("publisher: attempt {number}: {error}"));
                if !disk.is_dead() {
                    self.fail(format!("publication: {error}"));
                }
            }
        }
    }

    /// A database after a restart is whole, and the publisher's has what was acknowledged.
    pub(crate) fn check_database(&self, machine: &Machine) {
        if !Database::exists(&machine.db()) {
            if machine.name == "publisher" && self.published.lock().acknowledged.is_some() {
                self.fail("the publisher's database is lost".into());
            }
            return;
        }
        match Database::verify(&machine.db(), None) {
            Ok(found) if found.is_sound() => {}
            found => self.fail(format!("{}'s database: {found:?}", machine.name)),
        }
        let (acknowledged, snapshot) =
            (self.published.lock().acknowledged.clone(), Database::open_read(&machine.db()));
        if let (Some((order, signed)), Ok(snapshot)) = (acknowledged, snapshot)
            && machine.name == "publisher"
        {
            let newest = snapshot.revisions().last().map_or(0, |revision| revision.number);
            let is_same = newest > order.1 || snapshot.head().is_some_and(|head| head == signed);
            if newest < order.1 || !is_same {
                self.fail(format!("acknowledged {order:?}, and the head is revision {newest}"));
            }
        }
    }

    /// A mirror's process, until its machine is restarted.
    pub(crate) async fn mirror(self: Arc<Self>, machine: Arc<Machine>) {
        loop {
            let options = self.client_options(&machine.root, ClockOffset::default());
            let client = Client::new(options).expect("a runtime");
            let keep = [None, Some(2.into()), Some(1.into())][(self.seed % 3) as usize];
            let options = PullOptions {
                tree: TreeOptions {
                    replicas: vec!["publisher".into()],
                    only_replicas: true,
                    ..TreeOptions::default()
                },
                keep,
                disk: Arc::new(machine.disk()),
                ..PullOptions::new(machine.db())
            };
            let done = |outcome: vouch_tree_client::Result<_>| {
                let outcome = outcome
                    .map(|report: vouch_tree_client::PullReport| report.revision)
                    .map_err(|error| error.to_string());
                self.note(format!("{}: pulled {outcome:?}", machine.name));
            };
            let ended = pull_watch(&client, &name(), &options, &|_| {}, &done).await;
            self.note(format!("{}: {:?}", machine.name, ended.map_err(|e| e.to_string())));
            // As a service manager does.
            sleep(Duration::from_secs(5)).await;
        }
    }
}
