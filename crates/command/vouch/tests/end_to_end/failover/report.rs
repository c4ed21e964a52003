//! The figures of a run: lost changes, locks granted twice, operations without a record, and pauses
//! of clients.

use super::audited_operations::AuditedOperations;
use super::heads::{Active, Fault};
use super::pauses::{self, FirstSuccesses};
use super::worker::{Ledger, Missing, Worker, missing};
use crate::prelude::*;

pub(super) struct Injected {
    pub(super) fault: Fault,
    pub(super) active: Active,
    pub(super) at: Instant,
}

pub(super) fn print_and_assert(
    site: &TestSite,
    workers: &[Worker],
    ledger: &Ledger,
    injected: &[Injected],
    set_up: &str,
) {
    let (data, audited) = (site.path("data"), AuditedOperations::read(&site.path("trail")));
    let mut all = Missing { changes: ledger.lost_increments(&data), audit_records: 0 };
    for of_worker in
        workers.iter().map(|worker| missing(worker.number, worker.acknowledged, &data, &audited))
    {
        all.changes += of_worker.changes;
        all.audit_records += of_worker.audit_records;
    }
    let changes: u64 = workers.iter().map(|worker| worker.acknowledged).sum();
    let [granted, twice] =
        [&ledger.granted, &ledger.granted_twice].map(|count| count.load(Ordering::SeqCst));
    println!("failover ({set_up}): {} faults, {} clients", injected.len(), workers.len());
    println!("failover: changes acknowledged {changes}, lost {}", all.changes);
    println!("failover: locks granted {granted}, twice {twice}");
    println!(
        "failover: audit records {}, missing {}",
        audited.opened.len() + audited.written.len(),
        all.audit_records
    );
    print_all_pauses(workers, injected);
    assert_eq!((all, twice), (Missing::default(), 0));
}

fn print_all_pauses(workers: &[Worker], injected: &[Injected]) {
    let changes_of: Vec<_> = workers.iter().map(|worker| &worker.first_changes).collect();
    let locks_of: Vec<_> = workers.iter().map(|worker| &worker.first_locks).collect();
    for fault in [Fault::Kill, Fault::Stop, Fault::Shutdown] {
        let of_kind = || injected.iter().filter(|injected| injected.fault == fault);
        let changes = of_kind().flat_map(|injected| pauses_after(injected, &changes_of)).collect();
        // The other workers wait for the one that gets the lock.
        let locks = of_kind()
            .filter_map(|injected| pauses_after(injected, &locks_of).into_iter().min())
            .collect();
        pauses::print(&format!("{fault:?}, pause of changes, for each client"), changes);
        pauses::print(&format!("{fault:?}, pause of new locks, for the first client"), locks);
    }
}

fn pauses_after(
    Injected { active, at, .. }: &Injected,
    clients: &[&FirstSuccesses],
) -> Vec<Duration> {
    clients.iter().filter_map(|successes| successes.pause_after(active.epoch, *at)).collect()
}
