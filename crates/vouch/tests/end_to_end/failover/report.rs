//! The figures of a run: lost changes, locks granted twice, operations without a record, and pauses
//! of clients.

use std::collections::HashSet;

use vouch_audit::operations;

use super::heads::{Active, Fault};
use super::worker::{Ledger, Missing, Worker};
use crate::prelude::*;

pub(super) struct Injected {
    pub(super) fault: Fault,
    pub(super) active: Active,
    pub(super) at: Instant,
}

pub(super) fn print_and_assert(world: &TestSite, workers: &[Worker], ledger: &Ledger, injected: &[Injected], set_up: &str) {
    let (data, recorded) = (world.path("data"), opened_names(&world.path("trail")));
    let mut missing = Missing { changes: ledger.lost_increments(&data), audit_records: 0 };
    for of_worker in workers.iter().map(|worker| worker.missing(&data, &recorded)) {
        missing.changes += of_worker.changes;
        missing.audit_records += of_worker.audit_records;
    }
    let changes: u64 = workers.iter().map(|worker| worker.acknowledged).sum();
    let [granted, twice] = [&ledger.granted, &ledger.granted_twice].map(|count| count.load(Ordering::SeqCst));
    println!("failover ({set_up}): {} faults, {} clients", injected.len(), workers.len());
    println!("failover: changes acknowledged {changes}, lost {}", missing.changes);
    println!("failover: locks granted {granted}, twice {twice}");
    println!("failover: files created {}, without audit record {}", recorded.len(), missing.audit_records);
    print_all_pauses(workers, injected);
    assert_eq!((missing, twice), (Missing::default(), 0));
}

/// Of files that the workers created.
fn opened_names(trail: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    let read = entries(trail, 1, |entry| {
        let mut scratch = Vec::new();
        if entry.kind == Kind::Record
            && let Ok(record) = Record::decode(&entry.body, &mut scratch)
            && (record.class, record.result) == (Class::Operation, 0)
            && operations::name(record.operation) == "OPEN"
        {
            let path = String::from_utf8_lossy(record.path);
            names.extend(path.rsplit('/').next().filter(|name| name.starts_with("created-")).map(str::to_owned));
        }
        true
    });
    read.expect("the trail is read");
    names
}

fn print_all_pauses(workers: &[Worker], injected: &[Injected]) {
    let changes_of: Vec<_> = workers.iter().map(|worker| &worker.first_changes).collect();
    let locks_of: Vec<_> = workers.iter().map(|worker| &worker.first_locks).collect();
    for fault in [Fault::Kill, Fault::Stop, Fault::Shutdown] {
        let of_kind = || injected.iter().filter(|injected| injected.fault == fault);
        let changes = of_kind().flat_map(|injected| pauses_after(injected, &changes_of)).collect();
        // The other workers wait for the one that gets the lock.
        let locks = of_kind().filter_map(|injected| pauses_after(injected, &locks_of).into_iter().min()).collect();
        print_pauses(fault, "changes, for each client", changes);
        print_pauses(fault, "new locks, for the first client", locks);
    }
}

/// From the fault to the first event of each worker in a later epoch.
fn pauses_after(Injected { active, at, .. }: &Injected, events: &[&Vec<(u64, Instant)>]) -> Vec<Duration> {
    let first =
        |list: &&Vec<(u64, Instant)>| list.iter().find(|(epoch, _)| *epoch > active.epoch).map(|(_, first)| first.duration_since(*at));
    events.iter().filter_map(first).collect()
}

fn print_pauses(fault: Fault, what: &str, mut pauses: Vec<Duration>) {
    pauses.sort();
    let Some(last) = pauses.len().checked_sub(1) else { return };
    let at = |percent: usize| pauses[last * percent / 100].as_secs_f64();
    println!("failover: {fault:?}, pause of {what}: p50 {:.2} s, p99 {:.2} s, most {:.2} s of {}", at(50), at(99), at(100), pauses.len());
}
