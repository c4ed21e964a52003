//! Records of a batch job: those of the broker that mints its tickets, and those of exports whose
//! principal is the job's, whose client is one of the job's nodes, and at whose time the job had
//! tickets. Two jobs of a user on one node at the same time cannot be told apart.

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
    address: Option<IpAddr>,
    from_ns: u64,
    until_ns: u64,
}

impl JobTickets {
    /// Reads the trails that are a broker's.
    pub(super) fn read(job: &str, directories: &[&Path], reading: SearchMode) -> Outcome<Self> {
        let mut found = Self { key: format!("job:{job}").into_bytes(), ..Self::default() };
        let query = Query { key: vec![found.key.clone()], class: Some(Class::Administrative), ..Query::default() };
        let mut scratch = Vec::new();
        for directory in directories {
            search(directory, &query, false, reading, |hit| {
                if let Ok(record) = hit.record(&mut scratch)
                    && record.operation == Act::TicketMinted as u16
                {
                    found.principal = record.principal.to_vec();
                    let until_ns = record.time_ns.saturating_add(record.open_ns.unwrap_or(0));
                    found.tickets.push(Ticket { address: record.address, from_ns: record.time_ns, until_ns });
                }
                true
            })
            .at(directory.display())?;
        }
        Ok(found)
    }

    /// Each record of the job is found once, besides others that `has` refuses.
    pub(super) fn narrow(&self, query: Query) -> Vec<Query> {
        let of_broker = Query { key: vec![self.key.clone()], class: Some(Class::Administrative), ..query.clone() };
        let (Some(from_ns), Some(until_ns)) =
            (self.tickets.iter().map(|ticket| ticket.from_ns).min(), self.tickets.iter().map(|ticket| ticket.until_ns).max())
        else {
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
        let is_in = |ticket: &Ticket| ticket.address == record.address && (ticket.from_ns..ticket.until_ns).contains(&record.time_ns);
        match record.class {
            Class::Administrative => record.key == self.key,
            _ => record.principal == self.principal && self.tickets.iter().any(is_in),
        }
    }
}
