use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_tree_client::HttpOptions;

use crate::web_server::{Fault, WebServer};
use crate::{Site, content, open_at, read_all};

/// SOCKS 4 and 5 (RFC 1928), without authentication. The names are those of the requests.
struct SocksProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl SocksProxy {
    fn start() -> SocksProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) =
            (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let names = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let names = names.clone();
                std::thread::spawn(move || forward(client, &names));
            }
        });
        SocksProxy { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock());
        asked.dedup();
        asked
    }
}

fn forward(mut client: TcpStream, names: &Mutex<Vec<String>>) -> io::Result<()> {
    let [version] = read(&mut client)?;
    let (name, port) = if version == 5 { request_5(&mut client)? } else { request_4(&mut client)? };
    names.lock().push(name);
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let reply: &[u8] =
        if version == 5 { &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0] } else { &[0, 90, 0, 0, 0, 0, 0, 0] };
    client.write_all(reply)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        to_server.shutdown(std::net::Shutdown::Write)
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(std::net::Shutdown::Write)
}

fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn request_5(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let [methods] = read(client)?;
    io::copy(&mut client.try_clone()?.take(methods.into()), &mut io::sink())?;
    client.write_all(&[5, 0])?;
    let [_, command, _, kind] = read(client)?;
    assert_eq!(command, 1, "CONNECT");
    let name = match kind {
        1 => IpAddr::from(read::<4>(client)?).to_string(),
        4 => IpAddr::from(read::<16>(client)?).to_string(),
        _ => {
            let [len] = read(client)?;
            let mut name = String::new();
            client.try_clone()?.take(len.into()).read_to_string(&mut name)?;
            name
        }
    };
    Ok((name, u16::from_be_bytes(read(client)?)))
}

fn request_4(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let [command] = read(client)?;
    assert_eq!(command, 1, "CONNECT");
    let (port, address) = (u16::from_be_bytes(read(client)?), Ipv4Addr::from(read::<4>(client)?));
    while read::<1>(client)? != [0] {}
    Ok((address.to_string(), port))
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_read_through_socks_proxies() {
    let site = Site::new(32 << 20);
    let server = WebServer::start(&site.db(), Fault::None, 0, 0);
    let (port, script) = (server.address.port(), site.dir.path().join("proxy.pac"));
    for (kind, host, asked) in [
        // Only the proxy can know this name.
        ("socks5h", "store.invalid", "store.invalid"),
        ("pac", "store.invalid", "store.invalid"),
        ("socks5", "127.0.0.1", "127.0.0.1"),
        ("socks4", "127.0.0.1", "127.0.0.1"),
    ] {
        // Its own proxy, because connections of the case before may still come.
        let proxy = SocksProxy::start();
        let at = proxy.address;
        std::fs::write(
            &script,
            format!("function FindProxyForURL(url, host) {{ return 'SOCKS5 {at}'; }}"),
        )
        .unwrap();
        let proxies = if kind == "pac" {
            format!("pac:{}", script.display())
        } else {
            format!("{kind}://{at}")
        };
        let options = HttpOptions { proxies: vec![proxies.clone()], ..HttpOptions::default() };
        let replicas = vec![format!("http://{host}:{port}/")];
        let tree = open_at(&site.name, options, replicas).await.unwrap();
        for (number, bytes) in read_all(&tree).await.into_iter().enumerate() {
            assert!(bytes.unwrap() == content(number), "{proxies}: file {number}");
        }
        assert_eq!(proxy.asked(), [asked], "{proxies}");
    }
}
