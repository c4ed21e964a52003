//! Reads from a cache under a delegation, and what recalls it.

use std::time::Duration;

use tokio::time::Instant;
use vouch_nfs4::op::*;
use vouch_nfs4_client::Client;

use super::{CELL_LEN, LATER_MAX, Seen, Worker, content, no_delegation};
use crate::client::{Answer, answer, is_later};
use crate::history::{Call, Outcome};

/// Cells of the object.
const CACHED: usize = 2;
/// Far below each lease.
pub(super) const HELD_MAX: Duration = Duration::from_millis(400);

impl Worker {
    pub(super) async fn delegation_call(&mut self) {
        let file = self.objects.delegated;
        let cell = self.rng.below(CACHED as u64) as u8;
        match self.rng.below(10) {
            0..5 if self.client.minor() > 0 => self.cached_reads().await,
            0..7 => self.write_cell("delegated", file, cell).await,
            7 => self.truncate_file("delegated", file, cell).await,
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
            after_recall += u32::from(self.recalls.lock().contains(&stateid));
        }
        self.recalls.lock().remove(&stateid);
    }

    async fn open_and_write(&mut self, cell: u8) {
        let directory = self.objects.directory;
        let access = no_delegation(&self.client, ShareAccess::WRITE);
        let begun = Instant::now();
        let opened = loop {
            let opened = self.client.open(&directory, b"delegated", access, None).await;
            match answer(&self.client, opened).await {
                Answer::Status(status) if is_later(status) && begun.elapsed() < LATER_MAX => {
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
