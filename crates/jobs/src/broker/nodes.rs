//! Which principal may speak for which node.

use crate::names::NodeName;

/// Principals of the nodes' agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePrincipals {
    /// Realm of the nodes.
    pub realm: String,
    /// Domain of nodes that the scheduler knows by their short name.
    pub domain: String,
    /// Principals that speak for any node: for nodes of one image with one keytab.
    pub shared: Vec<String>,
}

impl NodePrincipals {
    /// Whether the agent's claim to be this node needs another proof than its principal.
    pub(crate) fn is_shared(&self, principal: &str) -> bool {
        self.shared.iter().any(|shared| shared == principal)
    }

    /// # Errors
    /// Why the principal may not speak for the node.
    pub(super) fn check(&self, principal: &str, node: &NodeName) -> Result<(), String> {
        let full = |host: &str| format!("host/{host}@{}", self.realm);
        let is_own = principal == full(node.as_str())
            || (!node.as_str().contains('.')
                && !self.domain.is_empty()
                && principal == full(&format!("{node}.{}", self.domain)));
        match is_own || self.is_shared(principal) {
            true => Ok(()),
            false => Err(format!(
                "may not speak for node {node}, whose principal is {}",
                full(&self.host(node))
            )),
        }
    }

    fn host(&self, node: &NodeName) -> String {
        match node.as_str().contains('.') || self.domain.is_empty() {
            true => node.to_string(),
            false => format!("{node}.{}", self.domain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_speaks_for_its_own_node_only() {
        let shared = vec!["host/image.example.org@R".to_owned()];
        let nodes = NodePrincipals { realm: "R".into(), domain: "example.org".into(), shared };
        let is_good = |principal: &str, node: &str| {
            nodes.check(principal, &NodeName::parse(node).unwrap()).is_ok()
        };
        assert!(
            is_good("host/n1.example.org@R", "n1")
                && is_good("host/n1@R", "n1")
                && is_good("host/n1.example.org@R", "n1.example.org")
        );
        for (principal, node) in [
            ("host/n2.example.org@R", "n1"),
            ("host/n1.example.org@OTHER", "n1"),
            ("host/n1.evil.org@R", "n1"),
            ("nfs/n1.example.org@R", "n1"),
            ("n1@R", "n1"),
            ("host/n1.example.org@R", "n1.evil.org"),
        ] {
            assert!(!is_good(principal, node), "{principal} {node}");
        }
        assert!(
            is_good("host/image.example.org@R", "n1")
                && nodes.is_shared("host/image.example.org@R")
        );
    }
}
