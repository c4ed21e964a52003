//! Guests report what they do to this program, so that one clock and one ledger cover all clients.

use std::net::TcpListener;

use super::pauses::FirstSuccesses;
use super::worker::{Ledger, Service};
use crate::prelude::*;

/// What one guest has reported.
#[derive(Default)]
pub(super) struct GuestReport {
    pub(super) acknowledged: u64,
    pub(super) renamed: Vec<String>,
    pub(super) first_changes: FirstSuccesses,
    pub(super) first_locks: FirstSuccesses,
    /// Locks of others that were denied, as they must be.
    pub(super) denied: u64,
    /// Operations that the guest's rpc.gssd got no context for.
    pub(super) refused: u64,
    pub(super) faults: Vec<String>,
}

pub(super) struct Observer {
    pub(super) reports: Vec<Arc<Mutex<GuestReport>>>,
    pub(super) address: SocketAddr,
}

impl Observer {
    /// `host`: the address of this machine in the network of the guests. A thread serves each
    /// guest, and ends when the guest ends.
    pub(super) fn start(
        host: &str,
        guests: usize,
        service: &Arc<Service>,
        ledger: &Arc<Ledger>,
    ) -> Observer {
        let listener = TcpListener::bind((host, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let reports: Vec<Arc<Mutex<GuestReport>>> = (0..guests).map(|_| Arc::default()).collect();
        let at_work = Arc::new(AtomicU64::new(guests as u64));
        let (shared, service, ledger) = (reports.clone(), service.clone(), ledger.clone());
        std::thread::spawn(move || {
            for _ in 0..guests {
                let (connection, _) = listener.accept().expect("a guest");
                let (reports, service, ledger, at_work) =
                    (shared.clone(), service.clone(), ledger.clone(), at_work.clone());
                std::thread::spawn(move || {
                    answer(connection, &reports, &service, &ledger, &at_work)
                });
            }
        });
        Observer { reports, address }
    }
}

/// The first line is the guest's number as a client, from 1. Each line gets one as an answer.
fn answer(
    connection: TcpStream,
    reports: &[Arc<Mutex<GuestReport>>],
    service: &Service,
    ledger: &Ledger,
    at_work: &AtomicU64,
) {
    use std::io::{BufRead as _, Write as _};
    let mut writer = connection.try_clone().expect("a descriptor");
    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
    let client: usize = lines.next().and_then(|line| line.parse().ok()).expect("a number");
    writeln!(writer, "welcome").expect("the guest reads");
    for line in lines {
        let epoch = service.epoch.load(Ordering::SeqCst);
        let mut report = reports[client - 1].lock();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let mut answer =
            if ledger.stop.load(Ordering::SeqCst) { "stop".to_owned() } else { "go".to_owned() };
        match word {
            "changed" => {
                report.acknowledged += 1;
                report.first_changes.note(epoch);
            }
            "renamed" => report.renamed.push(rest.to_owned()),
            "locked" => {
                report.first_locks.note(epoch);
                answer = ledger.begin_turn(client).to_string();
            }
            "unlocks" => ledger.end_turn(rest.parse().expect("a number")),
            "finished" => drop(at_work.fetch_sub(1, Ordering::SeqCst)),
            "others" => answer = at_work.load(Ordering::SeqCst).to_string(),
            "denied" => report.denied += 1,
            "refused" => report.refused += 1,
            _ => report.faults.push(line),
        }
        drop(report);
        if writeln!(writer, "{answer}").is_err() {
            return;
        }
    }
}
