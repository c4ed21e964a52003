use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::*;
use vouch_nfs4::{Attributes, Bitmap, Cookie, Filehandle, Name, Verifier};
use vouch_xdr::Writer;

use crate::compound::pack;
use crate::{Client, Error};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As the server sends it.
    pub name: Vec<u8>,
    /// If the server returns it.
    pub fileid: Option<u64>,
    /// If the server returns it.
    pub kind: Option<FileType>,
}

const LIST_LEN: u32 = 64 * 1024;

impl Client {
    /// Fails above `entries_max` entries: a faulty server could send entries forever.
    pub async fn list(
        &self,
        directory: &Filehandle,
        entries_max: usize,
    ) -> Result<Vec<Entry>, Error> {
        let (mut cookie, mut verifier, mut entries) = (Cookie(0), Verifier::default(), Vec::new());
        loop {
            let args = ReaddirArgs {
                cookie,
                verifier,
                dir_count: LIST_LEN / 4,
                max_count: LIST_LEN,
                wanted: Bitmap::of(&[1, 20]),
            };
            let reply = self.compound().putfh(directory).op(&Args::Readdir(args)).send().await?;
            let Results::Readdir(Ok(ok)) = reply.result_after(&[Op::PUTFH])? else {
                return Err(Error::Mismatch("expected the result of READDIR"));
            };
            let before = entries.len();
            for entry in ok.entries.iter() {
                let attributes = entry.attrs.attributes()?;
                entries.push(Entry {
                    name: entry.name.0.to_vec(),
                    fileid: attributes.fileid,
                    kind: attributes.file_type,
                });
                cookie = entry.cookie;
            }
            if ok.eof {
                return Ok(entries);
            }
            if entries.len() == before || entries.len() > entries_max {
                return Err(Error::Mismatch("the directory listing does not end"));
            }
            verifier = ok.verifier;
        }
    }

    /// Creates an object that is not a regular file.
    pub async fn create(
        &self,
        directory: &Filehandle,
        name: &[u8],
        kind: CreateType<'_>,
        attributes: &Attributes<'_>,
    ) -> Result<Filehandle, Error> {
        let mut packed = Writer::new();
        let args = CreateArgs { kind, name: Name(name), attrs: pack(attributes, &mut packed) };
        let reply = self
            .compound()
            .cached()
            .putfh(directory)
            .op(&Args::Create(args))
            .getfh()
            .send()
            .await?;
        match reply.result_after(&[Op::PUTFH, Op::CREATE])? {
            Results::Getfh(Ok(ok)) => Ok(ok.handle),
            _ => Err(Error::Mismatch("expected the result of GETFH")),
        }
    }

    /// Creates a directory.
    pub async fn mkdir(
        &self,
        directory: &Filehandle,
        name: &[u8],
        mode: u32,
    ) -> Result<Filehandle, Error> {
        let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
        self.create(directory, name, CreateType::Plain(FileType::Directory), &attributes).await
    }

    /// Removes a file or an empty directory.
    pub async fn remove(&self, directory: &Filehandle, name: &[u8]) -> Result<(), Error> {
        let reply = self
            .compound()
            .cached()
            .putfh(directory)
            .op(&Args::Remove(RemoveArgs { name: Name(name) }))
            .send()
            .await?;
        reply.results().skip(&[Op::PUTFH, Op::REMOVE])
    }

    /// Renames a file within one export.
    pub async fn rename(
        &self,
        from: &Filehandle,
        old: &[u8],
        to: &Filehandle,
        new: &[u8],
    ) -> Result<(), Error> {
        let args = RenameArgs { old: Name(old), new: Name(new) };
        let reply = self
            .compound()
            .cached()
            .putfh(from)
            .savefh()
            .putfh(to)
            .op(&Args::Rename(args))
            .send()
            .await?;
        reply.results().skip(&[Op::PUTFH, Op::SAVEFH, Op::PUTFH, Op::RENAME])
    }

    /// Adds a name to a file.
    pub async fn link(
        &self,
        file: &Filehandle,
        directory: &Filehandle,
        name: &[u8],
    ) -> Result<(), Error> {
        let args = LinkArgs { name: Name(name) };
        let reply = self
            .compound()
            .cached()
            .putfh(file)
            .savefh()
            .putfh(directory)
            .op(&Args::Link(args))
            .send()
            .await?;
        reply.results().skip(&[Op::PUTFH, Op::SAVEFH, Op::PUTFH, Op::LINK])
    }

    /// Returns the target of a symbolic link.
    pub async fn readlink(&self, link: &Filehandle) -> Result<Vec<u8>, Error> {
        let reply = self.compound().putfh(link).op(&Args::Readlink).send().await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Readlink(Ok(ok)) => Ok(ok.link.to_vec()),
            _ => Err(Error::Mismatch("expected the result of READLINK")),
        }
    }
}
