//! Requests to the KDC, a bounded number at once.

use std::path::PathBuf;

use parking_lot::{Condvar, Mutex};
use vouch_gss_mit::{DelegatedTickets, Delegation, KerberosError};

use crate::limits::KDC_REQUEST_COUNT_MAX;

pub(super) struct Mint {
    principal: String,
    keytab: PathBuf,
    services: Vec<String>,
    pool: Mutex<Pool>,
    freed: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Delegation>,
    busy: usize,
}

impl Mint {
    pub(super) fn new(principal: String, keytab: PathBuf, services: Vec<String>) -> Self {
        Self { principal, keytab, services, pool: Mutex::default(), freed: Condvar::new() }
    }

    pub(super) fn services(&self) -> &[String] {
        &self.services
    }

    pub(super) fn tickets(&self, user: &str, end_s: u64) -> Result<DelegatedTickets, KerberosError> {
        let mut pool = self.pool.lock();
        while pool.busy >= KDC_REQUEST_COUNT_MAX {
            self.freed.wait(&mut pool);
        }
        pool.busy += 1;
        let idle = pool.idle.pop();
        drop(pool);
        let delegation = idle.map_or_else(|| Delegation::new(&self.principal, &self.keytab), Ok);
        let (minted, delegation) = match delegation {
            Ok(mut delegation) => (delegation.tickets(user, &self.services, end_s), Some(delegation)),
            Err(fault) => (Err(fault), None),
        };
        let mut pool = self.pool.lock();
        pool.busy -= 1;
        pool.idle.extend(delegation);
        self.freed.notify_one();
        minted
    }
}
