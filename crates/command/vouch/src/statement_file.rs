//! Made by the root key or read from a file, then printed, written, or added to databases.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vouch_tree::keyfile::Role;
use vouch_tree::statement::{Body, KeyStatement, STATEMENTS_MAX};
use vouch_tree_store::{Database, WriteOptions};
use vouch_xdr::Xdr as _;

use crate::exit::{At as _, Failure, Outcome};
use crate::passphrase::PassphraseArgs;
use crate::{key_directory as keys, output, send_statement, when};

/// Options of `revoke` and `forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatementArgs {
    /// Directory with root.key, which signs the statement.
    #[arg(value_name = "KEYS", required_unless_present = "statement")]
    keys: Option<PathBuf>,
    /// Read an existing statement from this file instead of making one.
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    statement: Option<PathBuf>,
    /// Write the statement to this new file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Add the statement to this database of the tree, whose replica sends it to every client; may
    /// be repeated.
    #[arg(long, value_name = "DB")]
    db: Vec<PathBuf>,
    /// Send the statement to this replica, which must run with --accept-statements; may be repeated.
    #[arg(long, value_name = "HOST[:PORT]")]
    send: Vec<String>,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl StatementArgs {
    pub(crate) const fn is_given(&self) -> bool {
        self.statement.is_some()
    }

    /// `body`: `None` for an existing statement.
    pub(crate) fn carry_out(
        &self,
        body: Option<Body>,
        fits: impl FnOnce(&Body) -> bool,
    ) -> Outcome {
        let statement = match (&self.keys, &self.statement, body) {
            (_, Some(path), _) => {
                KeyStatement::parse(&keys::read_small(path)?).at(path.display())?
            }
            (Some(dir), None, Some(body)) => {
                let root =
                    keys::read_secret(&dir.join(keys::ROOT_KEY), Role::Root, &self.passphrase)?;
                KeyStatement::issue(&root, when::now_s(), body)
            }
            _ => {
                return Err(Failure::usage("KEYS", "missing")
                    .cure("give the directory with root.key, or --statement FILE"));
            }
        };
        let place = self.statement.as_deref().unwrap_or(Path::new("statement")).display();
        match statement.verified() {
            None => return Err(Failure::refused(place, "invalid signature")),
            Some(body) if !fits(body) => {
                return Err(Failure::input(place, "is a statement of the other kind"));
            }
            Some(Body::Forwarding { to }) if *to.hostid() == statement.hostid() => {
                return Err(Failure::input(to, "has the same HOSTID as the old name")
                    .cure("give the name of a tree with another key; a new host with the same key needs no pointer"));
            }
            Some(_) => {}
        }
        if let Some(path) = &self.out {
            keys::write_new(path, statement.to_text().as_bytes(), 0o644)?;
        }
        for db in &self.db {
            put_into(db, &statement)?;
        }
        let sent: Vec<Outcome> =
            self.send.iter().map(|replica| send_statement::send(replica, &statement)).collect();
        sent.into_iter().collect::<Outcome<()>>()?;
        if self.json {
            output::json(&Report {
                hostid: statement.hostid().to_string(),
                time: when::utc(statement.time()),
                file: self.out.as_ref().map(|path| path.display().to_string()),
                databases: self.db.iter().map(|path| path.display().to_string()).collect(),
                statement: statement.to_text(),
            })
        } else if self.out.is_none() && self.db.is_empty() && self.send.is_empty() {
            output::text(&statement.to_text())
        } else {
            Ok(())
        }
    }
}

fn put_into(db: &Path, statement: &KeyStatement) -> Outcome {
    let writer = Database::open_write(db, WriteOptions::default()).at(db.display())?;
    if writer.hostid() != statement.hostid() {
        return Err(Failure::input(
            db.display(),
            format_args!(
                "is the database of {}, the statement is about another key",
                writer.hostid()
            ),
        ));
    }
    let bytes = statement.to_xdr();
    let mut all = writer.statements();
    if all.contains(&bytes) {
        return Ok(());
    }
    if all.len() >= STATEMENTS_MAX {
        return Err(Failure::input(
            db.display(),
            format_args!("has {STATEMENTS_MAX} statements already"),
        ));
    }
    all.push(bytes);
    writer.set_statements(all).at(db.display())
}

#[derive(Serialize)]
struct Report {
    hostid: String,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    databases: Vec<String>,
    statement: String,
}
