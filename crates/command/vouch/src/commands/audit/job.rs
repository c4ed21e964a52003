//! Records of a batch job: those of the broker that mints its tickets, and those of exports whose
//! principal is the job's, whose client is one of the job's nodes, and at whose time the job had
//! tickets. Two jobs of a user at one address at the same time cannot be told apart.

use std::net::IpAddr;
use std::path::Path;

use vouch_audit::Record;
use vouch_audit::record::{Act, Class};
use vouch_audit::trail::{Query, SearchMode, search};

use crate::exit::{At as _, Outcome};

#[derive(Debug, Default)]
pub(super) struct JobTickets {
    key: Vec<u8>,
    principal: Vec<u8>,
    tickets: Vec<Ticket>,
}

#[derive(Debug)]
struct Ticket {
    node: Vec<u8>,
    address: Option<IpAddr>,
    from_ns: u64,
    until_ns: u64,
}

impl JobTickets {
    /// Reads the trails that are a broker's.
    pub(super) fn read(job: &str, directories: &[&Path], reading: SearchMode) -> Outcome<Self> {
        let mut found = Self { key: format!("job:{job}").into_bytes(), ..Self::default() };
        let query = Query {
            key: vec![found.key.clone()],
            class: Some(Class::Administrative),
            ..Query::default()
        };
        let mut scratch = Vec::new();
        for directory in directories {
            search(directory, &query, false, reading, |hit| {
                if let Ok(record) = hit.record(&mut scratch) {
                    found.add(&record);
                }
                true
            })
            .at(directory.display())?;
        }
        Ok(found)
    }

    /// A record of the job in the broker's trail, oldest first.
    fn add(&mut self, record: &Record<'_>) {
        if record.operation == Act::TicketMinted as u16 {
            self.principal = record.principal.to_vec();
            self.tickets.push(Ticket {
                node: record.client.to_vec(),
                // As exports record an IPv4 address.
                address: record.address.map(|address| address.to_canonical()),
                from_ns: record.time_ns,
                until_ns: record.time_ns.saturating_add(record.open_ns.unwrap_or(0)),
            });
        } else if record.operation == Act::TicketWithdrawn as u16 {
            for ticket in self.tickets.iter_mut().filter(|ticket| ticket.node == record.client) {
                ticket.until_ns = ticket.until_ns.min(record.time_ns);
            }
        }
    }

    /// Each record of the job is found once, besides others that `has` refuses.
    pub(super) fn narrow(&self, query: Query) -> Vec<Query> {
        let of_broker = Query {
            key: vec![self.key.clone()],
            class: Some(Class::Administrative),
            ..query.clone()
        };
        let (Some(from_ns), Some(until_ns)) = (
            self.tickets.iter().map(|ticket| ticket.from_ns).min(),
            self.tickets.iter().map(|ticket| ticket.until_ns).max(),
        ) else {
            return vec![of_broker];
        };
        let from_ns = Some(query.from_ns.map_or(from_ns, |asked| asked.max(from_ns)));
        let until_ns = Some(query.until_ns.map_or(until_ns, |asked| asked.min(until_ns)));
        let of_exports = [Class::Operation, Class::Refusal].map(|class| Query {
            principal: vec![self.principal.clone()],
            from_ns,
            until_ns,
            class: Some(class),
            ..query.clone()
        });
        let is_asked = |narrow: &Query| query.class.is_none_or(|class| narrow.class == Some(class));
        std::iter::once(of_broker).chain(of_exports).filter(is_asked).collect()
    }

    pub(super) fn has(&self, record: &Record<'_>) -> bool {
        let is_in = |ticket: &Ticket| {
            ticket.address == record.address
                && (ticket.from_ns..ticket.until_ns).contains(&record.time_ns)
        };
        match record.class {
            Class::Administrative => record.key == self.key,
            _ => record.principal == self.principal && self.tickets.iter().any(is_in),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_belongs_to_the_job_between_mint_and_withdrawal_at_its_node() {
        let mut job = JobTickets::default();
        let of_broker = |act: Act, client: &'static [u8], time_ns| Record {
            class: Class::Administrative,
            operation: act as u16,
            principal: b"alice@R",
            client,
            open_ns: Some(100),
            time_ns,
            ..Record::default()
        };
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        job.add(&Record { address: Some(mapped), ..of_broker(Act::TicketMinted, b"n1", 10) });
        job.add(&Record {
            address: Some(IpAddr::from([10, 0, 0, 2])),
            ..of_broker(Act::TicketMinted, b"n2", 20)
        });
        job.add(&of_broker(Act::TicketWithdrawn, b"n1", 50));
        let has = |address: [u8; 4], time_ns| {
            job.has(&Record {
                principal: b"alice@R",
                address: Some(address.into()),
                time_ns,
                ..Record::default()
            })
        };
        assert!(has([10, 0, 0, 1], 49) && !has([10, 0, 0, 1], 50) && !has([10, 0, 0, 1], 9));
        assert!(has([10, 0, 0, 2], 119) && !has([10, 0, 0, 2], 120));
    }
}
