//! What becomes of a mirror whose key was revoked or whose tree has moved: no revision is pulled
//! any more, but the statement that says so is, so that every client of the mirror learns it too.

use std::sync::Arc;

use vouch_tree::TreeName;
use vouch_tree_store::{Database, WriteOptions};
use vouch_xdr::Xdr;

use super::PullOptions;
use super::database::blocking;
use crate::client::{Client, TreeOptions};
use crate::{Error, Result, Tree};

/// Opens the tree of `name` itself, not one that it was forwarded to: a database holds one tree. If
/// its key forbids that by a statement, the statement goes into the database, and the error is
/// returned all the same.
pub(super) async fn open(client: &Arc<Client>, name: &TreeName, options: &PullOptions) -> Result<Arc<Tree>> {
    let own = TreeOptions { refuse_forwarding: true, ..options.tree.clone() };
    let opened = client.open(name, &own).await;
    if let Err(error) = &opened {
        store_statements_if_blocked(client, name, options, error).await?;
    }
    opened
}

/// Puts the statements about the key into the database if `error` is about them.
pub(super) async fn store_statements_if_blocked(client: &Arc<Client>, name: &TreeName, options: &PullOptions, error: &Error) -> Result<()> {
    if !matches!(error, Error::Revoked { .. } | Error::Forwarded { .. } | Error::Refused { .. }) {
        return Ok(());
    }
    let (seen, hostid) = (Arc::clone(&client.seen), *name.hostid());
    let (db, lock_wait) = (options.db.clone(), options.lock_wait);
    blocking(move || {
        let statements: Vec<Vec<u8>> = seen.load(&hostid)?.statements.iter().map(Xdr::to_xdr).collect();
        if statements.is_empty() || !Database::exists(&db) {
            return Ok(());
        }
        let writer = Database::open_write(&db, WriteOptions { lock_wait, ..WriteOptions::default() })?;
        if writer.hostid() == hostid && writer.statements() != statements {
            writer.set_statements(statements)?;
            tracing::warn!(db = %db.display(), "the mirror hands on what the key says of itself");
        }
        Ok(())
    })
    .await
}
