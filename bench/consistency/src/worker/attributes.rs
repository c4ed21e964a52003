//! Modes, access control lists, extended attributes, and the operations of NFSv4.2 on ranges.

use vouch_nfs4::op::*;
use vouch_nfs4_client::{Client, Error as CallError};

use super::{CELL_LEN, Seen, Worker, no_delegation};
use crate::client::{self, Answer, answer};
use crate::history::{Call, Outcome, SetHow};
use crate::model::{CELLS, REGISTERS};

/// Content of the file that COPY and CLONE read.
pub(crate) const SOURCE: [u64; CELLS] = [1001, 1002, 1003, 1004];
pub(crate) const FIRST_MODE: u64 = 0o666;

fn register(value: Option<u64>) -> Outcome {
    value.map_or(Outcome::NotFound, Outcome::Value)
}

impl Worker {
    pub(super) async fn attribute_call(&mut self) {
        let (file, listed) = (self.objects.attributes, self.objects.listed);
        let choice = self.rng.below(6);
        let random = self.rng.next();
        match choice {
            0 | 1 => {
                let value = 0o600 | random & 0o177;
                let send =
                    |client: Client| async move { client::set_mode(&client, &file, value).await };
                let call = Call::Set { key: 0, value, how: SetHow::Either };
                self.call("mode", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            2 => {
                let send = |client: Client| async move { client::mode(&client, &file).await };
                let call = Call::Get { key: 0 };
                self.call("mode", call, send, |mode, call| Seen::new(call, register(mode))).await;
            }
            3 | 4 => {
                let value = 60_000 + random % 1000;
                let send =
                    |client: Client| async move { client::set_acl(&client, &listed, value).await };
                let call = Call::Set { key: 0, value, how: SetHow::Either };
                self.call("acl", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            _ => {
                let send = |client: Client| async move { client::acl(&client, &listed).await };
                let call = Call::Get { key: 0 };
                self.call("acl", call, send, |user, call| Seen::new(call, register(user))).await;
            }
        }
    }

    pub(super) async fn xattr_call(&mut self) {
        let file = self.objects.attributes;
        let key = self.rng.below(REGISTERS as u64) as u8;
        let text = xattr_name(key);
        let name = text.as_bytes();
        match self.rng.below(8) {
            0..3 => {
                let value = self.new_value();
                let data = value.to_be_bytes();
                let (how, option) = match self.rng.below(3) {
                    0 => (SetHow::Either, SetxattrOption::Either),
                    1 => (SetHow::Create, SetxattrOption::Create),
                    _ => (SetHow::Replace, SetxattrOption::Replace),
                };
                let send = |client: Client| async move {
                    client.setxattr(&file, name, &data, option).await
                };
                let call = Call::Set { key, value, how };
                self.call("xattr", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            3..5 => {
                let send = |client: Client| async move { client.getxattr(&file, name).await };
                let call = Call::Get { key };
                self.call("xattr", call, send, |data, call| Seen::new(call, super::content(&data)))
                    .await;
            }
            5 => {
                let send = |client: Client| async move { client.removexattr(&file, name).await };
                let call = Call::Unset { key };
                self.call("xattr", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            _ => {
                let send = |client: Client| async move { client.listxattrs(&file).await };
                self.call("xattr", Call::Keys, send, |names, call| {
                    let keys = (0..REGISTERS as u8)
                        .filter(|&key| names.iter().any(|name| name == xattr_name(key).as_bytes()))
                        .fold(0, |keys, key| keys | 1 << key);
                    Seen::new(call, Outcome::Value(keys))
                })
                .await;
            }
        }
    }

    /// COPY, CLONE, ALLOCATE and DEALLOCATE.
    pub(super) async fn range_call(&mut self) {
        if self.state.ranges.is_none() {
            let directory = self.objects.directory;
            let mut files = Vec::new();
            for (name, access) in
                [(&b"source"[..], ShareAccess::READ), (&b"file"[..], ShareAccess::BOTH)]
            {
                let access = no_delegation(&self.client, access);
                let opened = self.client.open(&directory, name, access, None).await;
                match answer(&self.client, opened).await {
                    Answer::Ok(file) => files.push(file),
                    Answer::Status(_) | Answer::Lost => return,
                }
            }
            self.state.ranges = files.pop().zip(files.pop()).map(|(file, source)| (source, file));
        }
        let (choice, from) = (self.rng.below(8), self.rng.below(CELLS as u64));
        let cell = self.rng.below(CELLS as u64) as u8;
        let Some((source, file)) = &self.state.ranges else { return };
        let offset = u64::from(cell) * CELL_LEN;
        let (call, is_copy) = match choice {
            0..3 => (Call::Write { cell, value: SOURCE[from as usize], stable: false }, true),
            3 => (Call::Clone { values: SOURCE }, false),
            4 | 5 => (Call::Allocate { cells: cell + 1 }, false),
            _ => (Call::Punch { cell }, false),
        };
        let wanted = call.clone();
        let send = |client: Client| {
            let wanted = wanted.clone();
            async move {
                match wanted {
                    Call::Write { .. } if is_copy => {
                        let from = (source, from * CELL_LEN);
                        let copied = client.copy(from, (file, offset), CELL_LEN, true).await?;
                        match copied.response.count {
                            CELL_LEN => Ok(()),
                            _ => Err(CallError::Mismatch("COPY copied less")),
                        }
                    }
                    Call::Clone { .. } => client.clone_range((source, 0), (file, 0), 0).await,
                    Call::Allocate { .. } => client.allocate(file, 0, offset + CELL_LEN).await,
                    _ => client.deallocate(file, offset, CELL_LEN).await,
                }
            }
        };
        self.call("file", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
    }
}

fn xattr_name(key: u8) -> String {
    format!("k{key}")
}
