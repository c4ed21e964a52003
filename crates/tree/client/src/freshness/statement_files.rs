//! Key statements in local directories and published trees. In local directories, some files with
//! other names are read too.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::timeout;
use vouch_tree::statement::{KeyStatement, STATEMENT_LEN_MAX};
use vouch_tree::{Content, HostId, Inode};

use crate::directory::Position;
use crate::{Error, Result, Tree};

const FILE_LEN_MAX: usize = 2 * STATEMENT_LEN_MAX;

const DIRECTORY_ENTRIES_MAX: usize = 1_000_000;

const TREE_READ_MAX: Duration = Duration::from_secs(5);

/// Files read per HOSTID, and files with other names.
const FILES_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct CertificateTree {
    pub(crate) tree: Weak<Tree>,
    pub(crate) path: Vec<u8>,
}

/// Verified statements about `hostid`. Blocks on files.
///
/// # Errors
/// [`Error::Statement`]: a file named after `hostid` is unreadable, and may be a revocation.
pub fn local_statements(dirs: &[PathBuf], hostid: &HostId) -> Result<Vec<KeyStatement>> {
    match from_directories(dirs, hostid) {
        (_, Some(error)) => Err(error),
        (found, None) => Ok(found),
    }
}

/// Also returns the error of the first unreadable file named after `hostid`, which may be a
/// revocation.
pub(crate) fn from_directories(
    dirs: &[PathBuf],
    hostid: &HostId,
) -> (Vec<KeyStatement>, Option<Error>) {
    let name = hostid.to_string();
    let (mut found, mut fault) = (Vec::new(), None);
    for dir in dirs {
        let files = match fs::read_dir(dir) {
            Ok(entries) => entries.take(DIRECTORY_ENTRIES_MAX).filter_map(std::result::Result::ok),
            Err(error) => {
                tracing::warn!("certificates in {}: {error}", dir.display());
                continue;
            }
        };
        let (mut named, mut others) = (0, 0);
        for file in files {
            let file_name = file.file_name();
            let is_named = is_named_by(file_name.as_encoded_bytes(), &name);
            let count = if is_named { &mut named } else { &mut others };
            if *count >= FILES_MAX
                || (!is_named && begins_with_a_hostid(file_name.as_encoded_bytes()))
            {
                continue;
            }
            *count += 1;
            match read(&file.path()) {
                Ok(bytes) if is_named => match statement(&bytes, hostid) {
                    Ok(statement) => found.push(statement),
                    Err(what) => {
                        fault = fault.or(Some(Error::Statement { path: file.path(), what }))
                    }
                },
                Ok(bytes) => found.extend(
                    KeyStatement::parse(&bytes)
                        .ok()
                        .filter(|s| s.hostid() == *hostid && s.verified().is_some()),
                ),
                Err(error) if is_named => {
                    fault = fault.or_else(|| {
                        Some(Error::Statement { path: file.path(), what: error.to_string() })
                    })
                }
                Err(error) => tracing::warn!("{}: {error}", file.path().display()),
            }
        }
        if others >= FILES_MAX {
            tracing::warn!(
                "{}: more than {FILES_MAX} files are not named by a HOSTID and some are ignored; rename them to HOSTID.*",
                dir.display()
            );
        }
    }
    (found, fault)
}

/// Boxed: a refresh of that tree reads statements too.
pub(crate) fn from_tree<'a>(
    source: &'a CertificateTree,
    hostid: &'a HostId,
) -> BoxFuture<'a, Vec<KeyStatement>> {
    async move {
        let Some(tree) = source.tree.upgrade().filter(|tree| tree.hostid() != hostid) else {
            return Vec::new();
        };
        let read = timeout(TREE_READ_MAX, read_from_tree(&tree, &source.path, hostid));
        match read.await {
            Ok(Ok(found)) => return found,
            Ok(Err(error)) => tracing::warn!("certificates in {}: {error}", tree.name()),
            Err(_) => tracing::warn!("certificates in {}: no answer in time", tree.name()),
        }
        Vec::new()
    }
    .boxed()
}

async fn read_from_tree(
    tree: &std::sync::Arc<Tree>,
    path: &[u8],
    hostid: &HostId,
) -> Result<Vec<KeyStatement>> {
    let name = hostid.to_string();
    let dir = tree.lookup_path(tree.revision()?.root(), path).await?;
    let mut found = Vec::new();
    if let Some(entry) = tree.lookup(&dir, name.as_bytes()).await? {
        found.extend(read_statement(tree, &entry.inode, hostid).await?);
    }
    let listing = tree.list(&dir, Position::After(name.as_bytes())).await?;
    for entry in listing
        .entries()
        .iter()
        .take_while(|e| is_named_by(e.name.as_bytes(), &name))
        .take(FILES_MAX)
    {
        found.extend(read_statement(tree, &entry.inode, hostid).await?);
    }
    Ok(found)
}

async fn read_statement(
    tree: &Tree,
    inode: &Inode,
    hostid: &HostId,
) -> Result<Option<KeyStatement>> {
    match &inode.content {
        Content::Regular { blob, .. } if blob.size <= FILE_LEN_MAX as u64 => {
            let bytes = tree.read(blob, 0, FILE_LEN_MAX).await?;
            let found = statement(&bytes, hostid);
            Ok(found.inspect_err(|what| tracing::warn!("{}: {what}", tree.name())).ok())
        }
        _ => Ok(None),
    }
}

fn is_named_by(file: &[u8], hostid: &str) -> bool {
    file.strip_prefix(hostid.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

fn begins_with_a_hostid(file: &[u8]) -> bool {
    let text = file.split(|&b| b == b'.').next().and_then(|head| std::str::from_utf8(head).ok());
    text.is_some_and(|text| text.parse::<HostId>().is_ok())
}

/// The start of a regular file. Others are not read: a pipe may never end.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !fs::metadata(path)?.is_file() {
        return Ok(bytes);
    }
    File::open(path)?.take(FILE_LEN_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Must be about `hostid` and signed by its key.
fn statement(bytes: &[u8], hostid: &HostId) -> std::result::Result<KeyStatement, String> {
    match KeyStatement::parse(bytes) {
        Ok(statement) if statement.hostid() == *hostid && statement.verified().is_some() => {
            Ok(statement)
        }
        Ok(_) => Err("the key statement is not signed by the key in the file's name".to_owned()),
        Err(error) => Err(format!("not a key statement: {error}")),
    }
}
