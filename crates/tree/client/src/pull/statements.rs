//! A mirror of a revoked or moved tree pulls no more, but serves the statement to its clients.

use std::sync::Arc;

use vouch_tree::TreeName;
use vouch_tree_store::{Database, WriteOptions};
use vouch_xdr::Xdr;

use super::PullOptions;
use super::database::blocking;
use crate::client::{Client, TreeOptions};
use crate::{Error, Result, Tree};

/// Stores a statement that forbids the tree, and returns the error. Follows no forwarding pointer:
/// a database holds one tree.
pub(super) async fn open(
    client: &Arc<Client>,
    name: &TreeName,
    options: &PullOptions,
) -> Result<Arc<Tree>> {
    let own = TreeOptions { refuse_forwarding: true, ..options.tree.clone() };
    let opened = client.open(name, &own).await;
    if let Err(error) = &opened {
        store_statements_if_blocked(client, name, options, error).await?;
    }
    opened
}

pub(super) async fn store_statements_if_blocked(
    client: &Arc<Client>,
    name: &TreeName,
    options: &PullOptions,
    error: &Error,
) -> Result<()> {
    if !matches!(error, Error::Revoked { .. } | Error::Forwarded { .. } | Error::Refused { .. }) {
        return Ok(());
    }
    let (seen, hostid) = (Arc::clone(&client.seen), *name.hostid());
    let (db, lock_wait, disk) = (options.db.clone(), options.lock_wait, Arc::clone(&options.disk));
    blocking(client, move || {
        let statements: Vec<Vec<u8>> =
            seen.load(&hostid)?.statements.iter().map(Xdr::to_xdr).collect();
        if statements.is_empty() || !Database::exists(&db) {
            return Ok(());
        }
        let options = WriteOptions { lock_wait, disk, ..WriteOptions::default() };
        let writer = Database::open_write(&db, options)?;
        if writer.hostid() == hostid && writer.statements() != statements {
            writer.set_statements(statements)?;
            tracing::warn!(db = %db.display(), "the mirror now serves new key statements");
        }
        Ok(())
    })
    .await
}
