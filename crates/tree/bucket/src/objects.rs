use std::collections::HashSet;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectMeta, ObjectStore as _, ObjectStoreExt as _,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, UpdateVersion,
};
use vouch_tree_store::{BucketError, BucketErrorKind, LOG_CHECKPOINT, PENDING};

use crate::address::Address;
use crate::error::{describe, is_not_implemented};

#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) store: AmazonS3,
    pub(crate) single_deletes: AmazonS3,
    pub(crate) address: Address,
    pub(crate) endpoint: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Expected {
    Nothing,
    Tag(String),
    Anything,
}

pub(crate) struct StoredObject {
    pub(crate) bytes: Bytes,
    pub(crate) tag: String,
    pub(crate) meta: ObjectMeta,
}

impl Objects {
    pub(crate) fn key(&self, object: &str) -> Key {
        Key::from(self.address.key(object))
    }

    pub(crate) fn failed(&self, object: &str, error: &Error) -> BucketError {
        describe(
            &format!("s3://{}/{}", self.address.bucket, self.key(object)),
            &self.endpoint,
            error,
        )
    }

    /// `None` if it still has the tag. `Missing` if there is none.
    pub(crate) async fn get(
        &self,
        object: &str,
        known: Option<String>,
        len_max: u64,
    ) -> io::Result<Option<StoredObject>> {
        let options = GetOptions { if_none_match: known, ..GetOptions::default() };
        let got = match self.store.get_opts(&self.key(object), options).await {
            Err(Error::NotModified { .. }) => return Ok(None),
            got => got.map_err(|error| self.failed(object, &error))?,
        };
        if got.meta.size > len_max {
            return Err(self.invalid(
                object,
                format_args!("has {} bytes, more than the limit of {len_max}", got.meta.size),
            ));
        }
        let meta = got.meta.clone();
        let Some(tag) = meta.e_tag.clone() else {
            return Err(self.invalid(object, format_args!("has no ETag")));
        };
        let bytes = got.bytes().await.map_err(|error| self.failed(object, &error))?;
        Ok(Some(StoredObject { bytes, tag, meta }))
    }

    pub(crate) fn invalid(&self, object: &str, what: std::fmt::Arguments<'_>) -> io::Error {
        let text = format!("s3://{}/{}: {what}", self.address.bucket, self.key(object));
        BucketError { kind: BucketErrorKind::Invalid, text }.into()
    }

    pub(crate) async fn put(
        &self,
        object: &str,
        bytes: Bytes,
        expected: Expected,
    ) -> Result<String, Error> {
        let mode = match expected {
            Expected::Nothing => PutMode::Create,
            Expected::Tag(tag) => {
                PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None })
            }
            Expected::Anything => PutMode::Overwrite,
        };
        let options = PutOptions { mode, attributes: attributes(object), ..PutOptions::default() };
        let put =
            self.store.put_opts(&self.key(object), PutPayload::from_bytes(bytes), options).await?;
        Ok(put.e_tag.unwrap_or_default())
    }

    /// Success if it exists with the same bytes: the answer to an earlier attempt may be lost.
    pub(crate) async fn create(&self, object: &str, bytes: Bytes) -> io::Result<()> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match self.put(object, bytes.clone(), Expected::Nothing).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let failed = self.failed(object, &error);
            if matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. }) {
                let found = self.get(object, None, bytes.len() as u64).await;
                let is_same =
                    found.is_ok_and(|found| found.is_some_and(|found| found.bytes == bytes));
                return if is_same { Ok(()) } else { Err(failed.into()) };
            }
            if failed.kind != BucketErrorKind::Unreachable || attempts == ATTEMPTS_MAX {
                return Err(failed.into());
            }
            tracing::warn!("{failed}; trying again");
            tokio::time::sleep(PAUSE * attempts).await;
        }
    }

    /// Not all servers know conditions for uploads in parts: only the lock and this check protect
    /// the object.
    pub(crate) async fn create_in_parts(
        &self,
        object: &str,
        path: std::path::PathBuf,
    ) -> io::Result<()> {
        let failed = |error: Error| io::Error::from(self.failed(object, &error));
        let key = self.key(object);
        match self.store.head(&key).await {
            Err(Error::NotFound { .. }) => {}
            Ok(_) => {
                return Err(self
                    .failed(
                        object,
                        &Error::AlreadyExists { path: key.to_string(), source: "exists".into() },
                    )
                    .into());
            }
            Err(error) => return Err(failed(error)),
        }
        let options = PutMultipartOptions {
            attributes: attributes(object),
            ..PutMultipartOptions::default()
        };
        let upload = self.store.put_multipart_opts(&key, options).await.map_err(failed)?;
        let mut writer = object_store::WriteMultipart::new_with_chunk_size(upload, PART_LEN);
        let mut file = tokio::fs::File::open(path).await?;
        loop {
            let mut part = vec![0; PART_LEN];
            let len = fill(&mut file, &mut part).await?;
            part.truncate(len);
            if len == 0 {
                break;
            }
            writer.wait_for_capacity(PARTS_AT_ONCE).await.map_err(failed)?;
            writer.put(part.into());
        }
        writer.finish().await.map_err(failed)?;
        Ok(())
    }

    /// Objects of a directory, after a name.
    pub(crate) async fn list(&self, dir: &str, after: &str) -> io::Result<Vec<(String, u64)>> {
        let prefix = self.key(dir);
        let offset = self.key(&format!("{dir}/{after}"));
        let listed = if after.is_empty() {
            self.store.list(Some(&prefix))
        } else {
            self.store.list_with_offset(Some(&prefix), &offset)
        };
        let named = listed
            .map_ok(|meta| (meta.location.filename().unwrap_or_default().to_owned(), meta.size));
        named.try_collect().await.map_err(|error| self.failed(dir, &error).into())
    }

    pub(crate) async fn top(&self) -> io::Result<HashSet<String>> {
        let prefix = self.key("");
        let prefix = (!self.address.prefix.is_empty()).then_some(&prefix);
        let listed = self
            .store
            .list_with_delimiter(prefix)
            .await
            .map_err(|error| self.failed("", &error))?;
        let dirs =
            listed.common_prefixes.iter().filter_map(|path| Some(format!("{}/", path.filename()?)));
        let files =
            listed.objects.iter().filter_map(|meta| Some(meta.location.filename()?.to_owned()));
        Ok(dirs.chain(files).collect())
    }

    /// One request a thousand objects, or one each if there is one or the server knows no other.
    pub(crate) async fn delete(&self, objects: Vec<String>) -> io::Result<()> {
        let keys: Vec<_> = objects.iter().map(|object| self.key(object)).collect();
        let deleted = match keys.len() {
            1 => delete_all(&self.single_deletes, keys).await,
            _ => match delete_all(&self.store, keys.clone()).await {
                Err(error) if is_not_implemented(&error) => {
                    delete_all(&self.single_deletes, keys).await
                }
                deleted => deleted,
            },
        };
        deleted.map_err(|error| self.failed("", &error).into())
    }
}

async fn delete_all(store: &AmazonS3, keys: Vec<Key>) -> Result<(), Error> {
    let mut deleted =
        store.delete_stream(futures_util::stream::iter(keys.into_iter().map(Ok)).boxed());
    while let Some(result) = deleted.next().await {
        match result {
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn fill(file: &mut tokio::fs::File, part: &mut [u8]) -> io::Result<usize> {
    use tokio::io::AsyncReadExt as _;
    let mut len = 0;
    while len < part.len() {
        match file.read(&mut part[len..]).await? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}

/// Caches keep objects that never change, and revalidate the manifest.
fn attributes(object: &str) -> Attributes {
    let cache = match object {
        MANIFEST | LOG_CHECKPOINT => "max-age=30",
        LOCK | GARBAGE | PENDING => "no-store",
        _ => "public, max-age=31536000, immutable",
    };
    let content = if object == LOG_CHECKPOINT {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    };
    Attributes::from_iter([(Attribute::CacheControl, cache), (Attribute::ContentType, content)])
}

pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const LOCK: &str = "lock";
pub(crate) const GARBAGE: &str = "garbage";
/// Longer objects are uploaded in parts. Also read into memory.
pub(crate) const WHOLE_LEN_MAX: u64 = 64 << 20;
const PART_LEN: usize = 16 << 20;
const PARTS_AT_ONCE: usize = 4;
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
