//! Connections to machines.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep, timeout};
use vouch_replica::testing::StreamConnection;
use vouch_tree_client::{Connector, Link};

use crate::World;
use crate::machine::Machine;

/// A client's way to all machines.
pub(crate) struct WorldConnector(pub(crate) Arc<World>);

const READ_LEN: usize = 8 << 10;

impl Connector for WorldConnector {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let at = self.0.machines.iter().position(|machine| machine.name == host);
        let address =
            move |at| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, at as u8)), port);
        async move { Ok(vec![address(at.ok_or(io::ErrorKind::NotFound)?)]) }.boxed()
    }

    fn connect<'a>(
        &'a self,
        _host: &'a str,
        address: SocketAddr,
    ) -> BoxFuture<'a, io::Result<Link>> {
        async move {
            let IpAddr::V4(ip) = address.ip() else { return Err(io::ErrorKind::NotFound.into()) };
            let machine = Arc::clone(&self.0.machines[usize::from(ip.octets()[3])]);
            self.0.delay_message(&machine).await;
            let link_is_closed = {
                let link = machine.link.lock();
                link.is_down || link.is_refusing
            };
            let server = machine.server().filter(|_| !link_is_closed);
            let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = tokio::io::duplex(256 << 10);
            let connection = server.connect(Instant::now().into_std());
            let world = Arc::clone(&self.0);
            let is_cut = Arc::clone(&machine.cuts).notified_owned();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = is_cut => {}
                    () = serve(world, &machine, connection, theirs) => {}
                }
            });
            Ok(Link::Stream(Box::new(ours)))
        }
        .boxed()
    }
}

async fn serve(
    world: Arc<World>,
    machine: &Machine,
    mut connection: StreamConnection,
    mut stream: DuplexStream,
) {
    let mut buffer = vec![0; READ_LEN];
    loop {
        let n = match timeout(Duration::from_secs(120), stream.read(&mut buffer)).await {
            Ok(Ok(n @ 1..)) => n,
            Ok(_) => return,
            Err(_) if connection.is_expired(Instant::now().into_std()) => return,
            Err(_) => continue,
        };
        world.delay_message(machine).await;
        let now = Instant::now().into_std();
        let (mut replies, is_open) = connection.exchange(&buffer[..n], now);
        world.delay_message(machine).await;
        let (flips_bits, is_flaky) = {
            let link = machine.link.lock();
            (link.flips_bits, link.is_flaky)
        };
        if flips_bits && world.one_in(2) && !replies.is_empty() {
            let bit = world.roll(replies.len() as u64 * 8) as usize;
            replies[bit / 8] ^= 1 << (bit % 8);
        }
        let is_cut = is_flaky && world.one_in(4);
        let len = if is_cut { world.roll(replies.len() as u64) as usize } else { replies.len() };
        if stream.write_all(&replies[..len]).await.is_err() || is_cut || !is_open {
            return;
        }
    }
}

impl World {
    /// The way of a message to or from this machine. It ends when the network carries it again.
    async fn delay_message(&self, machine: &Machine) {
        let delay_ms_max = machine.link.lock().delay_ms_max;
        sleep(Duration::from_millis(self.roll(delay_ms_max + 1))).await;
        while machine.link.lock().is_silent {
            sleep(Duration::from_millis(500)).await;
        }
    }
}
