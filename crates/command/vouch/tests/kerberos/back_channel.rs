//! Recalls of delegations over a back channel under RPCSEC_GSS (RFC 8881, section 2.10.8.3).

use std::io::{Read as _, Write as _};

use tokio::sync::mpsc;
use vouch_nfs4::op::{DelegreturnArgs, ShareAccess};
use vouch_nfs4::{Attributes, Filehandle, cb};
use vouch_nfs4_client::{Client, Config, GssProtection};

use crate::prelude::*;

pub(crate) async fn recall(
    address: SocketAddr,
    service: Service,
    context: impl Fn() -> GssProtection + Send + Sync + Clone + 'static,
) {
    for named in [true, false] {
        recall_by(address, service, named, context.clone()).await;
    }
}

async fn recall_by(
    address: SocketAddr,
    service: Service,
    named: bool,
    context: impl Fn() -> GssProtection + Send + Sync + Clone + 'static,
) {
    let mut protection = context();
    let callback_security = named.then(|| protection.callback_security(service).expect("a name"));
    let (recall_sender, mut recalls) = mpsc::unbounded_channel();
    let identity = |name: &str| {
        Identity::new(format!("{name} of {service:?} {named}").into_bytes(), Verifier([7; 8]))
    };
    let destroy = protection.destroy(99).expect("a sequence number");
    let mut config =
        Config::new(address, 1, Identity { callback_security, ..identity("holder") }, protection);
    let anew = context.clone();
    config.renewal = Some(Arc::new(move || Ok(Box::new(anew()) as Box<dyn Protection>)));
    config.callbacks = Box::new(move |args: &cb::Args<'_>| match args {
        cb::Args::Recall(args) => {
            let _ = recall_sender.send(args.stateid);
            cb::Results::Recall(Ok(()))
        }
        other => cb::Results::failure(other.op(), Status::NOTSUPP),
    });
    let holder = Client::connect(config).await.expect("a session");
    let other = Client::connect(Config::new(address, 1, identity("other"), context()))
        .await
        .expect("a session");
    let export = holder.walk(b"export").await.expect("the export").handle;
    assert!(holder.are_callbacks_authenticated());
    recalled(&holder, &other, &export, &format!("first {service:?} {named}"), &mut recalls).await;
    if named {
        let another = context().callback_security(Service::Privacy).expect("a name");
        holder.set_callback_security(another).await.expect("the server accepts the parameters");
    } else {
        let mut socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        socket.write_all(&destroy).expect("the record is sent");
        socket.read_exact(&mut [0; 4]).expect("the context is ended");
    }
    recalled(&holder, &other, &export, &format!("second {service:?} {named}"), &mut recalls).await;
    assert!(holder.are_callbacks_authenticated());
    holder.close().await.expect("the client closes");
    other.close().await.expect("the client closes");
}

async fn recalled(
    holder: &Client,
    other: &Client,
    export: &Filehandle,
    name: &str,
    recalls: &mut mpsc::UnboundedReceiver<vouch_nfs4::Stateid>,
) {
    let wanted = ShareAccess(ShareAccess::READ.0 | ShareAccess::WANT_READ_DELEG.0);
    let end = Instant::now() + Duration::from_secs(60);
    let (file, delegation) = loop {
        let mut file = holder
            .open(export, name.as_bytes(), wanted, Some(&Attributes::default()))
            .await
            .expect("a file");
        // Returned below, and not again when the file is closed. Without a callback context the
        // server grants no delegation.
        match file.delegation.take() {
            Some(delegation) => break (file, delegation),
            None => holder.close_file(file).await.expect("the file closes"),
        }
        assert!(Instant::now() < end, "{name}: callbacks work, so there are delegations");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let writer = async {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match other.open(export, name.as_bytes(), ShareAccess::BOTH, None).await {
                Ok(file) => return other.close_file(file).await.expect("the file closes"),
                Err(error) => assert!(
                    error.status() == Some(Status::DELAY) && Instant::now() < end,
                    "{name}: {error}"
                ),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let returning = async {
        let stateid = tokio::time::timeout(Duration::from_secs(60), recalls.recv())
            .await
            .expect("a recall arrives")
            .expect("the callback handler runs");
        assert_eq!(stateid.other, delegation.other, "{name}");
        let reply = holder
            .compound()
            .putfh(&file.handle)
            .op(&Args::Delegreturn(DelegreturnArgs { stateid }))
            .send()
            .await
            .expect("a reply");
        assert_eq!(reply.status(), Status::OK, "{name}");
    };
    tokio::join!(writer, returning);
    holder.close_file(file).await.expect("the file closes");
}
