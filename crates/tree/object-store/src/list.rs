use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::{Path, PathPart};
use object_store::{Error, ListResult, ObjectMeta, Result};
use vouch_tree::{Content, DirEntry, Inode};
use vouch_tree_client::Position;

use crate::{TreeStore, failed};

/// A directory that is read next, from a name on.
struct Pending {
    location: Path,
    directory: Inode,
    after: Option<Vec<u8>>,
}

/// Files below a directory in no order. Memory: O(directories at one level of the path).
pub(crate) fn all_below(store: TreeStore, prefix: Path) -> BoxStream<'static, Result<ObjectMeta>> {
    stream::once(start(store, prefix))
        .map_ok(|(store, first)| {
            stream::try_unfold((store, Vec::from_iter(first)), |(store, mut pending)| async move {
                let Some(next) = pending.pop() else { return Ok::<_, Error>(None) };
                let page = read_page(&store, next).await?;
                pending.extend(page.next);
                pending.extend(page.directories);
                Ok(Some((stream::iter(page.objects.into_iter().map(Ok)), (store, pending))))
            })
            .try_flatten()
        })
        .try_flatten()
        .boxed()
}

/// One directory. Links to directories are left out, as in the list of all files.
pub(crate) async fn directory(store: &TreeStore, prefix: Path) -> Result<ListResult> {
    let mut found = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
    let mut next = start(store.clone(), prefix).await?.1;
    while let Some(pending) = next {
        let page = read_page(store, pending).await?;
        found.common_prefixes.extend(page.directories.into_iter().map(|below| below.location));
        found.objects.extend(page.objects);
        next = page.next;
    }
    Ok(found)
}

/// `None` if no directory has this name: then no object has the prefix.
async fn start(store: TreeStore, prefix: Path) -> Result<(TreeStore, Option<Pending>)> {
    let directory = match store.resolve(&prefix).await {
        Err(Error::NotFound { .. }) => None,
        resolved => resolved?.filter(Inode::is_directory),
    };
    let first = directory.map(|directory| Pending { location: prefix, directory, after: None });
    Ok((store, first))
}

struct Page {
    objects: Vec<ObjectMeta>,
    directories: Vec<Pending>,
    next: Option<Pending>,
}

async fn read_page(store: &TreeStore, pending: Pending) -> Result<Page> {
    let from = pending.after.as_deref().map_or(Position::Start, Position::After);
    let listing = store.tree.list(&pending.directory, from).await;
    let listing = listing.map_err(|error| failed(&pending.location, error))?;
    let mut page = Page { objects: Vec::new(), directories: Vec::new(), next: None };
    for entry in listing.entries() {
        let location = pending.location.clone().join(PathPart::from(entry.name.as_bytes()));
        if entry.inode.is_directory() {
            let directory = entry.inode.clone();
            page.directories.push(Pending { location, directory, after: None });
        } else if let Some(inode) = target(store, &location, entry).await? {
            page.objects.extend(store.describe(location, &inode).map(|(meta, _)| meta));
        }
    }
    let last = listing.entries().last().filter(|_| !listing.last);
    page.next = last.map(|last| Pending { after: Some(last.name.as_bytes().to_vec()), ..pending });
    Ok(page)
}

/// Follows a symbolic link. `None`: it leads nowhere.
async fn target(store: &TreeStore, location: &Path, entry: &DirEntry) -> Result<Option<Inode>> {
    if !matches!(entry.inode.content, Content::Symlink(_)) {
        return Ok(Some(entry.inode.clone()));
    }
    match store.resolve(location).await {
        Err(Error::NotFound { .. }) => Ok(None),
        resolved => resolved,
    }
}
