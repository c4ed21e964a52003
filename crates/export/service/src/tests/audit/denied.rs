use vouch_nfs4::op::{Access, AccessArgs, Args};

use super::*;

#[test]
fn access_without_rights_is_recorded() {
    let rules = include_str!("../../../../../../packaging/audit/sensitive.rules");
    let (directory, server) = start_audited(Some(rules), MemoryFs::new());
    block_on(async {
        let root = client(&server, "one").await;
        let data = root.walk(b"/data").await.unwrap();
        let closed = root.mkdir(&data.handle, b"closed", 0o700).await.unwrap();
        root.mkdir(&data.handle, b"open", 0o755).await.unwrap();
        root.close().await.unwrap();
        let identity = Identity::new(b"two", Verifier([2; 8]));
        let user = AuthSys {
            stamp: 0,
            machine_name: b"test".to_vec(),
            uid: 1000,
            gid: 1000,
            gids: Vec::new(),
        };
        let user = Client::connect(Config::new(server.address, 1, identity, Plain::sys(&user)))
            .await
            .unwrap();
        let open = user.walk(b"/data/open").await.unwrap().handle;
        let access = Args::Access(AccessArgs { access: Access(0x1f) });
        for handle in [closed, open] {
            user.compound().putfh(&handle).op(&access).send().await.unwrap();
        }
        user.close().await.unwrap();
    });
    drop(server);
    let found: Vec<String> = records(directory.path()).into_iter().map(|(what, ..)| what).collect();
    assert_eq!(found, ["ACCESS /data/closed"]);
}
