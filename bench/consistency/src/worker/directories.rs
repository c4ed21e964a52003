//! Names from a cache under a delegation of their directory, and what recalls it.

use std::time::Duration;

use tokio::time::Instant;
use vouch_nfs4::Stateid;

use super::delegations::HELD_MAX;
use super::{Seen, Worker};
use crate::client::{self, Answer, answer, refused};
use crate::history::{Call, Operation, Outcome, volatile_name};
use crate::model::NAMES;

impl Worker {
    /// A directory that others have changed is not delegated for a while, so each delegation has a
    /// new one.
    pub(super) async fn directory_call(&mut self) {
        let made = self.objects.cached.lock().clone();
        if made.is_empty() || self.client.minor() > 0 && self.rng.percent(20) {
            return self.cached_names(made.len()).await;
        }
        let (name, directory) = &made[self.rng.below(made.len() as u64) as usize];
        let choice = [0, 1, 2, 4, 5, 6, 7, 8, 9][self.rng.below(9) as usize];
        self.names_call_in(name, *directory, choice).await;
    }

    async fn cached_names(&mut self, number: usize) {
        let parent = self.objects.directory;
        let name = format!("cached-{}-{number}", self.number);
        let made = self.client.mkdir(&parent, name.as_bytes(), 0o777).await;
        let Answer::Ok(directory) = answer(&self.client, made).await else { return };
        let begun = Instant::now();
        let granted = match self.client.minor() {
            0 => None,
            _ => {
                let sent = client::get_dir_delegation(&self.client, &directory).await;
                match answer(&self.client, sent).await {
                    Answer::Ok(granted) => granted,
                    Answer::Status(_) | Answer::Lost => None,
                }
            }
        };
        self.objects.cached.lock().push((name.clone(), directory));
        let Some(stateid) = granted else { return };
        let mut cache = [const { None }; NAMES];
        for at in 0..NAMES as u8 {
            let start = self.now();
            let sent = client::lookup(&self.client, &directory, &volatile_name(at)).await;
            let outcome = match answer(&self.client, sent).await {
                Answer::Ok(id) => Outcome::Value(id),
                Answer::Status(status) => refused(status),
                Answer::Lost => continue,
            };
            let call = Call::Lookup { name: at, cached: false };
            self.record(&name, start, true, Seen::new(call, outcome.clone()));
            cache[usize::from(at)] = Some(outcome);
        }
        let seen = self.look_up_in_cache(&name, &cache, stateid, begun).await;
        let sent = client::return_delegation(&self.client, &directory, stateid).await;
        // A restart ends the delegation, and the client does not know it yet (RFC 8881 §10.9.5).
        if let Answer::Ok(()) = answer(&self.client, sent).await {
            self.log.lock().extend(seen);
        }
    }

    /// Until some time after a recall: it is in force until the client returns it.
    async fn look_up_in_cache(
        &mut self,
        object: &str,
        cache: &[Option<Outcome>; NAMES],
        stateid: Stateid,
        begun: Instant,
    ) -> Vec<Operation> {
        let (mut seen, mut after_recall) = (Vec::new(), 0);
        for _ in 0..self.rng.below(40) {
            tokio::time::sleep(Duration::from_millis(1 + self.rng.below(3))).await;
            let start = self.now();
            let name = self.rng.below(NAMES as u64) as u8;
            let Some(outcome) = &cache[usize::from(name)] else { continue };
            if begun.elapsed() > HELD_MAX || self.client.id() != self.id || after_recall > 3 {
                break;
            }
            let call = Call::Lookup { name, cached: true };
            seen.push(self.operation(object, start, true, Seen::new(call, outcome.clone())));
            after_recall += u32::from(self.delegations.lock().recalled.contains(&stateid.other));
        }
        self.delegations.lock().recalled.remove(&stateid.other);
        seen
    }
}
