//! Reads and writes in a cache under a delegation, and what recalls it.

use std::time::Duration;

use tokio::time::Instant;
use vouch_nfs4::op::*;
use vouch_nfs4::{ChangeId, Filehandle, Stateid};
use vouch_nfs4_client::Client;

use super::{CELL_LEN, Seen, Worker, content, no_delegation};
use crate::client::{self, Answer, CachedFile, answer, is_later};
use crate::history::{Call, Operation, Outcome};

/// Cells of the object.
const CACHED: usize = 2;
/// Far below each lease.
pub(super) const HELD_MAX: Duration = Duration::from_millis(400);

impl Worker {
    pub(super) async fn delegation_call(&mut self) {
        let file = self.objects.delegated;
        let cell = self.rng.below(CACHED as u64) as u8;
        match self.rng.below(20) {
            0..6 if self.client.minor() > 0 => self.cached_reads().await,
            6..12 if self.client.minor() > 0 => self.cached_writes().await,
            0..12 => self.write_cell("delegated", file, cell).await,
            12 | 13 => self.truncate_file("delegated", file, cell).await,
            14 | 15 => drop(self.read_cell("delegated", file, cell).await),
            16 | 17 => {
                for _ in 0..1 + self.rng.below(5) {
                    self.size_call("delegated", file).await;
                    tokio::time::sleep(Duration::from_millis(self.rng.below(4))).await;
                }
            }
            _ => self.open_and_write(cell).await,
        }
    }

    async fn cached_reads(&mut self) {
        let directory = self.objects.directory;
        let access = ShareAccess::READ | ShareAccess::WANT_READ_DELEG;
        let opened = self.client.open(&directory, b"delegated", access, None).await;
        let Answer::Ok(file) = answer(&self.client, opened).await else { return };
        let begun = Instant::now();
        let mut cache = [const { None }; CACHED];
        for cell in 0..CACHED as u8 {
            let (start, offset) = (self.now(), u64::from(cell) * CELL_LEN);
            let sent = self.client.read(&file, offset, CELL_LEN as u32).await;
            if let Answer::Ok((data, _)) = answer(&self.client, sent).await {
                let outcome = content(&data);
                let call = Call::Read { cell, cached: false };
                self.record("delegated", start, true, Seen::new(call, outcome.clone()));
                cache[usize::from(cell)] = Some(outcome);
            }
        }
        if let Some(stateid) = file.delegation {
            self.read_cache(&cache, stateid.other, begun).await;
        }
        let sent = self.client.close_file(file).await;
        let _ = answer(&self.client, sent).await;
    }

    /// Until some time after a recall: it is in force until the client returns it.
    async fn read_cache(
        &mut self,
        cache: &[Option<Outcome>; CACHED],
        stateid: [u8; 12],
        begun: Instant,
    ) {
        let mut after_recall = 0;
        for _ in 0..self.rng.below(12) {
            tokio::time::sleep(Duration::from_millis(1 + self.rng.below(3))).await;
            let start = self.now();
            let cell = self.rng.below(CACHED as u64) as u8;
            let Some(outcome) = &cache[usize::from(cell)] else { continue };
            if begun.elapsed() > HELD_MAX || self.client.id() != self.id || after_recall > 3 {
                break;
            }
            let call = Call::Read { cell, cached: true };
            self.record("delegated", start, true, Seen::new(call, outcome.clone()));
            after_recall += u32::from(self.delegations.lock().recalled.contains(&stateid));
        }
        self.delegations.lock().recalled.remove(&stateid);
    }

    async fn cached_writes(&mut self) {
        let directory = self.objects.directory;
        let access = ShareAccess::BOTH | ShareAccess::WANT_WRITE_DELEG;
        let opened = self.client.open(&directory, b"delegated", access, None).await;
        let Answer::Ok(file) = answer(&self.client, opened).await else { return };
        if let Some(stateid) = file.delegation.filter(|_| file.is_write_delegation) {
            let written = self.write_in_cache(file.handle, stateid).await;
            self.write_back(file.handle, stateid, written).await;
            let delegations = &mut *self.delegations.lock();
            delegations.written = None;
            delegations.recalled.remove(&stateid.other);
        }
        let sent = self.client.close_file(file).await;
        let _ = answer(&self.client, sent).await;
    }

    /// Others see the size of the cache, which the server asks for (RFC 8881 §10.4.3). They see the
    /// data once they have waited for the end of the delegation.
    async fn write_in_cache(&mut self, handle: Filehandle, stateid: Stateid) -> Vec<Operation> {
        let (begun, start) = (Instant::now(), self.now());
        let sent = client::attributes(&self.client, &handle).await;
        let Answer::Ok((Some(change), mut size)) = answer(&self.client, sent).await else {
            return Vec::new();
        };
        let seen = Seen::new(Call::Size, Outcome::Value(size.div_ceil(CELL_LEN)));
        self.record("delegated", start, true, Seen { change: Some(change), ..seen });
        let file = CachedFile { handle, size, change: ChangeId(change) };
        self.delegations.lock().written = Some(file);
        let (mut written, mut after_recall) = (Vec::new(), 0);
        for _ in 0..self.rng.below(16) {
            tokio::time::sleep(Duration::from_millis(1 + self.rng.below(3))).await;
            if begun.elapsed() > HELD_MAX || self.client.id() != self.id || after_recall > 2 {
                break;
            }
            let (cell, value) = (self.rng.below(CACHED as u64) as u8, self.new_value());
            let start = self.now();
            let delegations = &mut *self.delegations.lock();
            size = size.max((u64::from(cell) + 1) * CELL_LEN);
            let change = ChangeId(change + 1);
            delegations.written = Some(CachedFile { size, change, ..file });
            let call = Call::Write { cell, value, stable: false };
            written.push(self.operation("delegated", start, true, Seen::new(call, Outcome::Done)));
            after_recall += u32::from(delegations.recalled.contains(&stateid.other));
        }
        written
    }

    /// Sends the newest value of each cell. If one of them is not confirmed, the history records
    /// that cached data may be lost.
    async fn write_back(
        &mut self,
        handle: Filehandle,
        stateid: Stateid,
        mut written: Vec<Operation>,
    ) {
        let mut newest = [None; CACHED];
        for op in &written {
            if let Call::Write { cell, value, .. } = op.call {
                newest[usize::from(cell)] = Some(value);
            }
        }
        let mut is_stored = [false; CACHED];
        for (at, value) in newest.iter().enumerate() {
            if let Some(value) = value {
                is_stored[at] = self.write_back_cell((&handle, stateid), at, *value).await;
            }
        }
        for op in &mut written {
            if let Call::Write { cell, stable, .. } = &mut op.call {
                *stable = is_stored[usize::from(*cell)];
            }
        }
        if let Some(first) = written.first()
            && newest.iter().zip(is_stored).any(|(value, is_stored)| value.is_some() && !is_stored)
        {
            let loss = self.operation(
                "delegated",
                first.start,
                false,
                Seen::new(Call::Loss, Outcome::Unknown),
            );
            written.push(loss);
        }
        self.log.lock().extend(written);
    }

    /// True if the server has answered that it is stable.
    async fn write_back_cell(&self, file: (&Filehandle, Stateid), cell: usize, value: u64) -> bool {
        let (offset, data) = (cell as u64 * CELL_LEN, value.to_be_bytes());
        let begun = Instant::now();
        loop {
            let sent = client::write(&self.client, file, offset, &data, StableHow::FileSync).await;
            match answer(&self.client, sent).await {
                Answer::Ok((is_stable, _)) => return is_stable,
                Answer::Status(status) if is_later(status) && self.may_repeat(begun) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Answer::Status(_) | Answer::Lost => return false,
            }
        }
    }

    async fn open_and_write(&mut self, cell: u8) {
        let directory = self.objects.directory;
        let access = no_delegation(&self.client, ShareAccess::WRITE);
        let begun = Instant::now();
        let opened = loop {
            let opened = self.client.open(&directory, b"delegated", access, None).await;
            match answer(&self.client, opened).await {
                Answer::Status(status) if is_later(status) && self.may_repeat(begun) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Answer::Ok(file) => break file,
                Answer::Status(_) | Answer::Lost => return,
            }
        };
        // Time for another client to open the file.
        tokio::time::sleep(Duration::from_millis(self.rng.below(4))).await;
        let value = self.new_value();
        let (offset, data) = (u64::from(cell) * CELL_LEN, value.to_be_bytes());
        let file = &opened;
        let send = |client: Client| async move {
            client.write(file, offset, &data, StableHow::FileSync).await
        };
        let call = Call::Write { cell, value, stable: false };
        self.call("delegated", call, send, |(_, how, verifier), _| Seen {
            verifier: Some(u64::from_be_bytes(verifier.0)),
            ..Seen::new(
                Call::Write { cell, value, stable: how != StableHow::Unstable },
                Outcome::Done,
            )
        })
        .await;
        let sent = self.client.close_file(opened).await;
        let _ = answer(&self.client, sent).await;
    }
}
