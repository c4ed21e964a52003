//! Tickets by requests to the KDC, a bounded number at once.

use std::path::PathBuf;

use parking_lot::{Condvar, Mutex};
use vouch_gss_mit::{DelegatedTickets, Delegation, KerberosError};

use crate::limits::KDC_REQUEST_COUNT_MAX;

/// Where tickets come from.
pub(crate) trait TicketSource: Send + Sync {
    /// Tickets of a user for the services, until `end_s` at most. May block for seconds.
    ///
    /// # Errors
    /// If the KDC refuses, or does not answer.
    fn tickets(
        &self,
        user: &str,
        services: &[String],
        end_s: u64,
    ) -> Result<DelegatedTickets, KerberosError>;
}

pub(super) struct TicketIssuer {
    principal: String,
    keytab: PathBuf,
    pool: Mutex<Pool>,
    freed: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Delegation>,
    busy: usize,
}

impl TicketIssuer {
    pub(super) fn new(principal: String, keytab: PathBuf) -> Self {
        Self { principal, keytab, pool: Mutex::default(), freed: Condvar::new() }
    }
}

impl TicketSource for TicketIssuer {
    fn tickets(
        &self,
        user: &str,
        services: &[String],
        end_s: u64,
    ) -> Result<DelegatedTickets, KerberosError> {
        let mut pool = self.pool.lock();
        while pool.busy >= KDC_REQUEST_COUNT_MAX {
            self.freed.wait(&mut pool);
        }
        pool.busy += 1;
        let idle = pool.idle.pop();
        drop(pool);
        let delegation = idle.map_or_else(|| Delegation::new(&self.principal, &self.keytab), Ok);
        let (minted, delegation) = match delegation {
            Ok(mut delegation) => (delegation.tickets(user, services, end_s), Some(delegation)),
            Err(fault) => (Err(fault), None),
        };
        let mut pool = self.pool.lock();
        pool.busy -= 1;
        pool.idle.extend(delegation);
        self.freed.notify_one();
        minted
    }
}
