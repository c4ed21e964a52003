//! Any client may send key statements, the signature proves them, a directory keeps them. A tree
//! has at most a revocation and the newest forwarding pointer. Others are refused, so senders
//! cannot fill the disk.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use vouch_tree::HostId;
use vouch_tree::protocol::PutStatementResult;
use vouch_tree::statement::{KeyStatement, STATEMENT_LEN_MAX, effective_statement};
use vouch_xdr::Xdr as _;

use super::trees::Trees;

#[derive(Debug)]
pub(super) struct StatementStore {
    directory: PathBuf,
    /// One writer at a time.
    writing: Mutex<()>,
    started: Instant,
    /// Second of the last signature check, and its checks: `second << 16 | checks`.
    checks: AtomicU64,
}

impl StatementStore {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        File::open(directory)?.sync_all()?;
        Ok(Self {
            directory: directory.to_owned(),
            writing: Mutex::default(),
            started: Instant::now(),
            checks: AtomicU64::new(0),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn load(&self, hostid: &HostId) -> Vec<Vec<u8>> {
        [true, false]
            .into_iter()
            .filter_map(|is_revocation| {
                let path = self.path(hostid, is_revocation);
                match fs::read(&path) {
                    Ok(bytes) => {
                        match KeyStatement::parse(&bytes).ok().filter(|found| found.hostid() == *hostid && found.verified().is_some()) {
                            Some(statement) => Some(statement.to_xdr()),
                            None => {
                                tracing::error!(path = %path.display(), "not a statement about this key; ignored");
                                None
                            }
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => {
                        tracing::error!(path = %path.display(), %error, "a statement can't be read");
                        None
                    }
                }
            })
            .collect()
    }

    pub(super) fn put(&self, trees: &Trees, bytes: &[u8]) -> PutStatementResult {
        if bytes.len() > STATEMENT_LEN_MAX {
            return PutStatementResult::Invalid;
        }
        let Ok(statement) = KeyStatement::from_xdr(bytes) else {
            return PutStatementResult::Invalid;
        };
        let Some(tree) = trees.get(&statement.hostid()) else { return PutStatementResult::NoTree };
        if tree.statements().iter().any(|known| known == bytes) {
            return PutStatementResult::Known;
        }
        if !self.may_check() {
            return PutStatementResult::TryLater;
        }
        if statement.verified().is_none() {
            return PutStatementResult::Invalid;
        }
        let _turn = self.writing.lock();
        let known: Vec<KeyStatement> = tree
            .statements()
            .iter()
            .filter_map(|known| KeyStatement::from_xdr(known).ok())
            .collect();
        // It would not be in force, so it tells clients nothing new.
        if let Some(known) = effective_statement(tree.hostid(), &known)
            && (known.is_revocation()
                || !statement.is_revocation() && known.time() >= statement.time())
        {
            return PutStatementResult::Known;
        }
        if let Err(error) = self.store(&statement) {
            tracing::error!(directory = %self.directory.display(), %error, "a statement can't be stored");
            return PutStatementResult::TryLater;
        }
        tree.take_statements(self.load(tree.hostid()));
        let kind = if statement.is_revocation() { "revocation" } else { "forwarding pointer" };
        tracing::warn!(hostid = %tree.hostid(), "a {kind} of this tree's key was received and is served");
        PutStatementResult::Stored
    }

    /// Writes, syncs and renames: a crash leaves the old file or the new one.
    fn store(&self, statement: &KeyStatement) -> io::Result<()> {
        let path = self.path(&statement.hostid(), statement.is_revocation());
        let new = self.directory.join("new");
        let mut file = File::create(&new)?;
        file.write_all(statement.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self, hostid: &HostId, is_revocation: bool) -> PathBuf {
        self.directory
            .join(format!("{hostid}.{}", if is_revocation { "revocation" } else { "forwarding" }))
    }

    fn may_check(&self) -> bool {
        let second = self.started.elapsed().as_secs();
        let counted = self.checks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            let checks = if last >> 16 == second { last & 0xffff } else { 0 };
            (checks < CHECKS_MAX).then_some(second << 16 | (checks + 1))
        });
        counted.is_ok()
    }
}

/// Signature checks per second of the whole replica: less than a hundredth of a core.
const CHECKS_MAX: u64 = 100;
