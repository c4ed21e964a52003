//! An identity that clients cannot choose freely.

use std::sync::Arc;

use crate::Principal;
use crate::access::network::Network;
use crate::state::client::credential::Credential;

/// The proven principal, or else the network of one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::state) enum Source {
    Network(Network),
    Principal(Arc<str>),
}

impl Source {
    pub(in crate::state) fn of(credential: &Credential<'_>) -> Self {
        match credential.principal {
            Principal::Gss { name } | Principal::Certificate { name } => {
                Source::Principal(name.clone())
            }
            _ => Source::Network(Network::of(credential.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::sys;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let none = Principal::None;
        let of = |address: &str| {
            Source::of(&Credential { address: address.parse().unwrap(), ..sys(&none) })
        };
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let machine = Principal::Gss { name: "nfs/a@B".into() };
        assert_eq!(Source::of(&sys(&machine)), Source::Principal("nfs/a@B".into()));
    }
}
