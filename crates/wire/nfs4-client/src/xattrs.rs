//! RFC 8276.

use vouch_nfs4::op::*;
use vouch_nfs4::{Bytes, Cookie, Filehandle, Name};

use crate::{Client, Error};

impl Client {
    /// Returns the value of an extended attribute.
    pub async fn getxattr(&self, file: &Filehandle, name: &[u8]) -> Result<Vec<u8>, Error> {
        let reply = self
            .compound()
            .putfh(file)
            .op(&Args::Getxattr(GetxattrArgs { name: Name(name) }))
            .send()
            .await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Getxattr(Ok(ok)) => Ok(ok.value.to_vec()),
            _ => Err(Error::Mismatch("expected the result of GETXATTR")),
        }
    }

    /// Sets an extended attribute.
    pub async fn setxattr(
        &self,
        file: &Filehandle,
        name: &[u8],
        value: &[u8],
        option: SetxattrOption,
    ) -> Result<(), Error> {
        let args = SetxattrArgs { option, name: Name(name), value: Bytes(value) };
        let reply = self.compound().cached().putfh(file).op(&Args::Setxattr(args)).send().await?;
        reply.results().skip(&[Op::PUTFH, Op::SETXATTR])
    }

    /// Returns the names of all extended attributes.
    pub async fn listxattrs(&self, file: &Filehandle) -> Result<Vec<Vec<u8>>, Error> {
        let (mut cookie, mut names) = (Cookie(0), Vec::new());
        loop {
            let args = ListxattrsArgs { cookie, max_count: 64 * 1024 };
            let reply = self.compound().putfh(file).op(&Args::Listxattrs(args)).send().await?;
            let Results::Listxattrs(Ok(ok)) = reply.result_after(&[Op::PUTFH])? else {
                return Err(Error::Mismatch("expected the result of LISTXATTRS"));
            };
            names.extend(ok.names.iter().map(|name| name.0.to_vec()));
            if ok.eof {
                return Ok(names);
            }
            if ok.names.is_empty() || names.len() > XATTR_NAMES_MAX {
                return Err(Error::Mismatch("the list of extended attributes does not end"));
            }
            cookie = ok.cookie;
        }
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, file: &Filehandle, name: &[u8]) -> Result<(), Error> {
        let args = RemovexattrArgs { name: Name(name) };
        let reply =
            self.compound().cached().putfh(file).op(&Args::Removexattr(args)).send().await?;
        reply.results().skip(&[Op::PUTFH, Op::REMOVEXATTR])
    }
}
