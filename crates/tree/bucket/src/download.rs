use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use object_store::ObjectStoreExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::objects::Objects;

/// The file appears complete. `len`: required length, if known.
pub(crate) async fn download(
    objects: &Objects,
    object: &str,
    to: &Path,
    len: Option<u64>,
) -> io::Result<()> {
    let next = beside(to);
    let written = write(objects, object, &next, len).await;
    let moved = match written {
        Ok(()) => std::fs::rename(&next, to),
        Err(error) => Err(error),
    };
    if moved.is_err() {
        let _ = std::fs::remove_file(&next);
    }
    moved
}

async fn write(objects: &Objects, object: &str, next: &Path, len: Option<u64>) -> io::Result<()> {
    let got = objects
        .store
        .get(&objects.key(object))
        .await
        .map_err(|error| objects.failed(object, &error))?;
    let size = got.meta.size;
    if len.is_some_and(|len| len != size) || size > OBJECT_LEN_MAX {
        return Err(objects.invalid(
            object,
            format_args!(
                "has {size} bytes, unlike the manifest; `vouch verify --db` lists the damage"
            ),
        ));
    }
    let mut file = tokio::fs::File::create(next).await?;
    let mut stream = got.into_stream();
    let mut written = 0;
    while let Some(part) = stream.next().await {
        let part = part.map_err(|error| objects.failed(object, &error))?;
        written += part.len() as u64;
        if written > size {
            break;
        }
        file.write_all(&part).await?;
    }
    file.flush().await?;
    if written == size {
        Ok(())
    } else {
        Err(objects.invalid(object, format_args!("came with {written} bytes instead of {size}")))
    }
}

pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(
        ".{name}.{}.{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ))
}

/// A segment of a billion records has 44 GB.
const OBJECT_LEN_MAX: u64 = 1 << 37;
