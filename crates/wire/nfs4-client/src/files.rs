use std::sync::atomic::Ordering;

use vouch_nfs4::op::*;
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, ClientId, Filehandle, Name, OwnerSeq, StateOwner, Stateid, Verifier,
};
use vouch_xdr::Writer;

use crate::compound::pack;
use crate::{Client, Error, ReplyBody};

/// A file that was looked up.
#[derive(Debug, Clone)]
pub struct FileInfo {
    /// For later operations.
    pub handle: Filehandle,
    /// Bytes; zero if the server does not return it.
    pub size: u64,
    /// Regular file, directory or other type.
    pub kind: vouch_nfs4::attr::FileType,
    /// Zero if the server does not return it.
    pub mode: u32,
    /// Zero if the server does not return it.
    pub fileid: u64,
}

/// An open file. Close it with [`Client::close_file`].
#[derive(Debug, Clone)]
pub struct OpenFile {
    /// For operations of your own.
    pub handle: Filehandle,
    /// For operations of your own.
    pub stateid: Stateid,
    /// A delegation that the server has granted with the open.
    pub delegation: Option<Stateid>,
    /// The delegation is for writing.
    pub is_write_delegation: bool,
    pub(crate) owner: Vec<u8>,
    pub(crate) seq: OwnerSeq,
    pub(crate) access: ShareAccess,
    pub(crate) deny: ShareDeny,
}

const WANTED: Bitmap = Bitmap::of(&[1, 4, 20, 33]);

impl Client {
    /// Looks up a path from the root.
    pub async fn walk(&self, path: &[u8]) -> Result<FileInfo, Error> {
        let names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut compound = self.compound().putrootfh();
        for name in &names {
            compound = compound.lookup(name);
        }
        let reply = compound.getfh().getattr(WANTED).send().await?;
        let mut results = reply.results();
        results.skip(&[Op::PUTROOTFH])?;
        names.iter().try_for_each(|_| results.skip(&[Op::LOOKUP]))?;
        found(&mut results)
    }

    /// With `create`, OPEN creates a missing file with these attributes.
    pub async fn open(
        &self,
        directory: &Filehandle,
        name: &[u8],
        access: ShareAccess,
        create: Option<&Attributes<'_>>,
    ) -> Result<OpenFile, Error> {
        let mut packed = Writer::new();
        let how = match create {
            Some(attributes) => {
                OpenHow::Create(CreateHow::Unchecked(pack(attributes, &mut packed)))
            }
            None => OpenHow::NoCreate,
        };
        self.open_with(directory, access, ShareDeny(0), how, OpenClaim::Null(Name(name))).await
    }

    /// Depending on `claim`, `base` is the directory or the file.
    pub async fn open_with(
        &self,
        base: &Filehandle,
        access: ShareAccess,
        deny: ShareDeny,
        how: OpenHow<'_>,
        claim: OpenClaim<'_>,
    ) -> Result<OpenFile, Error> {
        let owner =
            format!("open {}", self.shared.owners.fetch_add(1, Ordering::Relaxed)).into_bytes();
        let client = if self.minor() == 0 { self.id() } else { ClientId(0) };
        let args = OpenArgs {
            seq: OwnerSeq(0),
            access,
            deny,
            owner: StateOwner { client, owner: Bytes(&owner) },
            how,
            claim,
        };
        let reply =
            self.compound().cached().putfh(base).op(&Args::Open(args)).getfh().send().await?;
        let mut results = reply.results();
        results.skip(&[Op::PUTFH])?;
        let Results::Open(Ok(ok)) = results.next_ok()? else {
            return Err(Error::Mismatch("expected the result of OPEN"));
        };
        let Results::Getfh(Ok(got)) = results.next_ok()? else {
            return Err(Error::Mismatch("expected the result of GETFH"));
        };
        let (delegation, is_write_delegation) = match ok.delegation {
            Delegation::Read(delegation) | Delegation::ReadAttrs(delegation) => {
                (Some(delegation.stateid), false)
            }
            Delegation::Write(delegation) | Delegation::WriteAttrs(delegation) => {
                (Some(delegation.stateid), true)
            }
            Delegation::None | Delegation::NoneExt(_) => (None, false),
        };
        let mut file = OpenFile {
            handle: got.handle,
            stateid: ok.stateid,
            delegation,
            is_write_delegation,
            owner,
            seq: OwnerSeq(1),
            access,
            deny,
        };
        if ok.flags.contains(OpenResultFlags::CONFIRM) {
            let args = OpenConfirmArgs { stateid: file.stateid, seq: file.seq };
            let reply =
                self.compound().putfh(&file.handle).op(&Args::OpenConfirm(args)).send().await?;
            let Results::OpenConfirm(Ok(ok)) = reply.result_after(&[Op::PUTFH])? else {
                return Err(Error::Mismatch("expected the result of OPEN_CONFIRM"));
            };
            file.stateid = ok.stateid;
            file.seq = file.seq.next();
        }
        Ok(file)
    }

    /// Returns the data and whether it reaches the end of the file.
    pub async fn read(
        &self,
        file: &OpenFile,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Error> {
        let args = ReadArgs { stateid: file.stateid, offset, count };
        let reply = self.compound().putfh(&file.handle).op(&Args::Read(args)).send().await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Read(Ok(ok)) if ok.data.len() <= count as usize => {
                Ok((ok.data.to_vec(), ok.eof))
            }
            _ => Err(Error::Mismatch("expected the result of READ")),
        }
    }

    /// Returns the number of bytes, their stability, and the write verifier.
    pub async fn write(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<(u32, StableHow, Verifier), Error> {
        let args = WriteArgs { stateid: file.stateid, offset, stable, data: Bytes(data) };
        let reply = self.compound().putfh(&file.handle).op(&Args::Write(args)).send().await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Write(Ok(ok)) if ok.count as usize <= data.len() => {
                Ok((ok.count, ok.committed, ok.verifier))
            }
            _ => Err(Error::Mismatch("expected the result of WRITE")),
        }
    }

    /// Returns the write verifier.
    pub async fn commit(&self, file: &OpenFile) -> Result<Verifier, Error> {
        let reply = self
            .compound()
            .putfh(&file.handle)
            .op(&Args::Commit(CommitArgs { offset: 0, count: 0 }))
            .send()
            .await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Commit(Ok(ok)) => Ok(ok.verifier),
            _ => Err(Error::Mismatch("expected the result of COMMIT")),
        }
    }

    /// Closes the file and returns its delegation.
    pub async fn close_file(&self, file: OpenFile) -> Result<(), Error> {
        let seq = if self.minor() == 0 { file.seq } else { OwnerSeq(0) };
        let mut compound = self
            .compound()
            .cached()
            .putfh(&file.handle)
            .op(&Args::Close(CloseArgs { seq, stateid: file.stateid }));
        if let Some(stateid) = file.delegation {
            compound = compound.op(&Args::Delegreturn(DelegreturnArgs { stateid }));
        }
        let reply = compound.send().await?;
        let mut results = reply.results();
        results.skip(&[Op::PUTFH, Op::CLOSE])?;
        file.delegation.map_or(Ok(()), |_| results.skip(&[Op::DELEGRETURN]))
    }
}

pub(crate) fn found(results: &mut ReplyBody<'_>) -> Result<FileInfo, Error> {
    let Results::Getfh(Ok(got)) = results.next_ok()? else {
        return Err(Error::Mismatch("expected the result of GETFH"));
    };
    let Results::Getattr(Ok(ok)) = results.next_ok()? else {
        return Err(Error::Mismatch("expected the result of GETATTR"));
    };
    let attributes = ok.attrs.attributes()?;
    Ok(FileInfo {
        handle: got.handle,
        size: attributes.size.unwrap_or(0),
        kind: attributes.file_type.ok_or(Error::Mismatch("GETATTR returned no type"))?,
        mode: attributes.mode.unwrap_or(0),
        fileid: attributes.fileid.unwrap_or(0),
    })
}
