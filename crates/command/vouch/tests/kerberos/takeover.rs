//! Two heads with one keytab: clients reclaim after a takeover, under each Kerberos service.

use crate::lock_holder::LockHolder;
use crate::own_client::{
    SERVICES, assert_success, client, client_command, config, report_ready, when_ready,
};
use crate::prelude::*;
use vouch_testkit::moving_address::MovingAddress;

#[test]
#[ignore = "needs a KDC"]
fn clients_reclaim_after_takeover_under_each_service() {
    let kdc = realm(Kdc::start());
    for enctype in ["aes256-cts-hmac-sha1-96", "aes256-cts-hmac-sha384-192"] {
        kdc.client(&kdc::Client { name: enctype, enctypes: enctype, ..kdc::Client::default() });
        let mut export = Export::start_with(
            &kdc,
            ServerOptions { lease: "90", head: Some("a"), ..ServerOptions::default() },
        );
        let moving = MovingAddress::start(
            TcpListener::bind("127.0.0.1:0").expect("a free port"),
            vec![export.address],
            u64::MAX,
        );
        let command =
            &mut client_command(&kdc, enctype, enctype, "takeover", moving.address.port());
        let mut holder = command.spawn().expect("this program starts");
        when_ready(&mut holder, || {
            export.fail_over_to(&kdc, "b");
            moving.move_to(export.address);
        });
        assert_success(holder, &export);
        for (minor, service) in kinds() {
            assert_eq!(
                std::fs::read(export.data(&name(minor, service))).expect("the file"),
                b"before after"
            );
        }
        let callers = export.callers();
        assert!(
            callers.iter().all(|(principal, _)| *principal == format!("root@{REALM}")),
            "{callers:?}"
        );
    }
}

/// In the child.
pub(crate) async fn hold_over_takeover(address: SocketAddr) {
    let mut holders = Vec::new();
    for (minor, service) in kinds() {
        holders.push(
            LockHolder::connect(config("holder", address, minor, service), name(minor, service))
                .await,
        );
    }
    report_ready().await;
    for holder in &mut holders {
        holder.reclaim().await;
    }
    for (holder, (minor, service)) in holders.into_iter().zip(kinds()) {
        holder.release_to(&client(address, minor, service).await).await;
    }
}

fn kinds() -> impl Iterator<Item = (u32, Service)> {
    [1, 2].into_iter().flat_map(|minor| SERVICES.map(|service| (minor, service)))
}

fn name(minor: u32, service: Service) -> String {
    format!("{minor} {service:?}")
}
