//! For `vouch check`.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::clock;
use crate::monitoring::status::RefusalStatus;

#[derive(Default)]
pub(crate) struct RecentRefusals(Mutex<VecDeque<RefusalStatus>>);

impl RecentRefusals {
    pub(crate) fn add(&self, fault: &str, caller: &str, address: IpAddr, reason: &str) {
        let (fault, caller, address, reason) =
            (fault.to_owned(), caller.to_owned(), address.to_string(), reason.to_owned());
        let new =
            RefusalStatus { fault, caller, address, reason, at_seconds: clock::now().wall.seconds };
        let is_same = |known: &RefusalStatus| {
            known.fault == new.fault
                && known.caller == new.caller
                && (!new.caller.is_empty() || known.address == new.address)
        };
        let mut refusals = self.0.lock();
        refusals.retain(|known| !is_same(known));
        if refusals.len() >= REFUSALS_MAX {
            refusals.pop_front();
        }
        refusals.push_back(new);
    }

    pub(crate) fn status(&self) -> Vec<RefusalStatus> {
        self.0.lock().iter().cloned().collect()
    }
}

pub(crate) const NO_ACCOUNT: &str = "user-without-account";

const REFUSALS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_refusal_of_each_caller() {
        let refusals = RecentRefusals::default();
        let add = |caller: &str, last: u8| {
            refusals.add(NO_ACCOUNT, caller, IpAddr::from([192, 0, 2, last]), "no account")
        };
        (0..40).for_each(|number| add(&format!("user{}", number % 20), 1));
        let callers: Vec<_> = refusals.status().into_iter().map(|refused| refused.caller).collect();
        assert_eq!(callers, (4..20).map(|number| format!("user{number}")).collect::<Vec<_>>());
        add("user4", 2);
        let newest = refusals.status().pop().unwrap();
        assert_eq!(
            (&*newest.caller, &*newest.address, refusals.status().len()),
            ("user4", "192.0.2.2", REFUSALS_MAX)
        );
        [3, 4, 3].into_iter().for_each(|last| add("", last));
        assert_eq!(refusals.status().iter().filter(|refused| refused.caller.is_empty()).count(), 2);
    }
}
