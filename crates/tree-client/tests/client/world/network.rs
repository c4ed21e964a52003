//! A network in memory: addresses that lead to test replicas.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use vouch_tree_client::{Connector, Stream};

use super::replica::{Fault, TestReplica};

/// Bytes under way in one direction.
const PIPE_LEN: usize = 256 * 1024;

#[derive(Default)]
pub struct TestNetwork {
    hosts: Mutex<BTreeMap<String, Vec<SocketAddr>>>,
    replicas: Mutex<BTreeMap<SocketAddr, Arc<TestReplica>>>,
}

impl TestNetwork {
    /// All of `replicas` behind one name.
    pub fn of(host: &str, replicas: &[Arc<TestReplica>]) -> Arc<Self> {
        let network = Arc::new(Self::default());
        replicas.iter().for_each(|replica| {
            network.add(host, replica);
        });
        network
    }

    pub fn add(&self, host: &str, replica: &Arc<TestReplica>) -> SocketAddr {
        let mut replicas = self.replicas.lock();
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, replicas.len() as u8 + 1)), 4340);
        replicas.insert(address, Arc::clone(replica));
        self.hosts.lock().entry(host.to_owned()).or_default().push(address);
        address
    }
}

impl Connector for TestNetwork {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = self.hosts.lock().get(host).cloned();
        async move { found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host")) }.boxed()
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        async move {
            let replica = self.replicas.lock().get(&address).cloned().ok_or(io::ErrorKind::AddrNotAvailable)?;
            match replica.fault() {
                Fault::Refuse => Err(io::ErrorKind::ConnectionRefused.into()),
                Fault::Blackhole => std::future::pending().await,
                _ => {
                    let (ours, theirs) = tokio::io::duplex(PIPE_LEN);
                    tokio::spawn(replica.run(theirs));
                    Ok(Box::new(ours) as Box<dyn Stream>)
                }
            }
        }
        .boxed()
    }
}
