//! Recalls of delegations over a back channel under RPCSEC_GSS (RFC 8881, section 2.10.8.3).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use vouch_nfs4::op::{Args, DelegreturnArgs, ShareAccess};
use vouch_nfs4::{Attributes, Filehandle, Status, Verifier, cb};
use vouch_nfs4_client::{Client, Config, GssProtection, Identity};
use vouch_rpcsec_gss::Service;

/// Two clients of the same user: what one holds is recalled for the other, under the context that the first was made with, and under another one after that.
pub(crate) async fn recall(address: SocketAddr, service: Service, context: impl Fn() -> GssProtection) {
    let protection = context();
    let security = protection.back_security(service).expect("a name");
    let (tell, mut told) = mpsc::unbounded_channel();
    let identity = |name: &str| Identity::new(format!("{name} of {service:?}").into_bytes(), Verifier([7; 8]));
    let mut config = Config::new(address, 1, Identity { back_security: Some(security), ..identity("holder") }, protection);
    config.callbacks = Box::new(move |args: &cb::Args<'_>| match args {
        cb::Args::Recall(args) => {
            let _ = tell.send(args.stateid);
            cb::Results::Recall(Ok(()))
        }
        other => cb::Results::failure(other.op(), Status::NOTSUPP),
    });
    let holder = Client::connect(config).await.expect("a session");
    let other = Client::connect(Config::new(address, 1, identity("other"), context())).await.expect("a session");
    let export = holder.walk(b"export").await.expect("the export").handle;
    recalled(&holder, &other, &export, &format!("first {service:?}"), &mut told).await;
    // BACKCHANNEL_CTL: a stronger service, by a context of its own.
    let another = context().back_security(Service::Privacy).expect("a name");
    holder.set_back_security(another).await.expect("the server takes it");
    recalled(&holder, &other, &export, &format!("second {service:?}"), &mut told).await;
    holder.close().await.expect("it ends in order");
    other.close().await.expect("it ends in order");
}

async fn recalled(
    holder: &Client,
    other: &Client,
    export: &Filehandle,
    name: &str,
    told: &mut mpsc::UnboundedReceiver<vouch_nfs4::Stateid>,
) {
    let wanted = ShareAccess(ShareAccess::READ.0 | ShareAccess::WANT_READ_DELEG.0);
    let mut file = holder.open(export, name.as_bytes(), wanted, Some(&Attributes::default())).await.expect("a new file");
    // It is given back below, and not once more with the file.
    let delegation = file.delegation.take().expect("callbacks work, so there are delegations");
    let writer = async {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match other.open(export, name.as_bytes(), ShareAccess::BOTH, None).await {
                Ok(file) => return other.close_file(file).await.expect("it closes"),
                Err(error) => assert!(error.status() == Some(Status::DELAY) && Instant::now() < end, "{name}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let returning = async {
        let stateid = tokio::time::timeout(Duration::from_secs(60), told.recv()).await.expect("a recall comes").expect("the handler lives");
        assert_eq!(stateid.other, delegation.other, "{name}");
        let reply =
            holder.compound().putfh(&file.handle).op(&Args::Delegreturn(DelegreturnArgs { stateid })).send().await.expect("a reply");
        assert_eq!(reply.status(), Status::OK, "{name}");
    };
    tokio::join!(writer, returning);
    holder.close_file(file).await.expect("it closes");
}
