//! The faults of a machine, chosen by the seed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use vouch_replica::testing::StreamReplica;

use crate::World;
use crate::machine::{Link, Machine};

/// The writing process is killed after so long, if its disk has not taken enough steps.
const FUSE_MAX: Duration = Duration::from_secs(25);

impl World {
    pub(crate) async fn cause_faults(self: Arc<Self>, machine: Arc<Machine>) {
        let is_mirror = machine.name != "publisher";
        for _ in 0..self.roll(10) {
            self.sleep_up_to(20_000).await;
            match self.roll(if is_mirror { 13 } else { 9 }) {
                0..4 => self.disturb_network(&machine).await,
                4..6 => self.kill(&machine).await,
                6..9 => self.cut_power(&machine).await,
                _ => self.misbehave(&machine).await,
            }
            self.note(format!("{}: works", machine.name));
            let delay_ms_max = if self.one_in(4) { 3000 } else { 20 };
            *machine.link.lock() = Link { delay_ms_max, ..Link::default() };
        }
        machine.link.lock().delay_ms_max = 20;
    }

    fn begin(&self, machine: &Machine, what: &str) {
        self.note(format!("{}: {what}", machine.name));
    }

    async fn disturb_network(&self, machine: &Machine) {
        match self.roll(4) {
            0 => {
                self.begin(machine, "connections are cut");
                machine.cuts.notify_waiters();
                return;
            }
            1 => {
                self.begin(machine, "connections break within replies");
                machine.link.lock().is_flaky = true;
            }
            2 => {
                self.begin(machine, "silent");
                machine.link.lock().is_silent = true;
            }
            _ => {
                self.begin(machine, "refuses connections");
                machine.link.lock().is_refusing = true;
                machine.cuts.notify_waiters();
            }
        }
        self.sleep_up_to(30_000).await;
    }

    /// What only untrusted machines do.
    async fn misbehave(&self, machine: &Machine) {
        let older = machine.older(self.roll(u64::MAX));
        match (self.roll(4), older) {
            (0, _) => {
                self.begin(machine, "flips bits");
                machine.link.lock().flips_bits = true;
                self.sleep_up_to(40_000).await;
            }
            (1, Some(older)) => {
                self.begin(machine, "serves an older copy");
                if let Ok(server) = StreamReplica::open(&older) {
                    machine.serve(Some(server));
                    self.sleep_up_to(40_000).await;
                    machine.serve(None);
                }
            }
            (2, Some(older)) => {
                self.begin(machine, "is restored from an older copy");
                machine.kill();
                self.sleep_up_to(5_000).await;
                machine.replace_db(&older);
                self.check_database(machine);
                machine.restart();
            }
            _ => {
                self.begin(machine, "is copied");
                machine.copy();
            }
        }
    }

    async fn burn(&self, machine: &Machine) {
        let steps = self.roll(60);
        let _ = timeout(FUSE_MAX, machine.disk().burn(steps)).await;
        machine.kill();
    }

    async fn kill(&self, machine: &Machine) {
        self.burn(machine).await;
        self.begin(machine, "is killed");
        self.sleep_up_to(10_000).await;
        machine.restart();
    }

    async fn cut_power(&self, machine: &Machine) {
        self.burn(machine).await;
        if self.one_in(2) {
            self.begin(machine, "is killed");
            self.sleep_up_to(10_000).await;
        }
        self.begin(machine, "is without power");
        machine.lose_power(self.roll(u64::MAX));
        self.check_database(machine);
        self.sleep_up_to(20_000).await;
        machine.restart();
    }

    async fn sleep_up_to(&self, ms: u64) {
        sleep(Duration::from_millis(self.roll(ms))).await;
    }
}
