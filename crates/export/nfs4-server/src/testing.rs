use std::net::SocketAddr;
use std::sync::Arc;

use vouch_vfs::memory::MemoryFs;
use vouch_vfs::{Blocking, Caller, Time};

use crate::{
    ClientAccess, ClientMatcher, Config, Export, ExportId, Exports, Flavour, FlavourAccess,
    Identity, Limits, NoObserver, Now, Principal, Recovered, Server, Squash, SquashWho, Transport,
    Unanswered,
};

pub const LEASE_MS: u64 = 10_000;

pub fn time_at(ms: u64) -> Now {
    Now { mono_ms: ms, wall: Time { seconds: 1_700_000_000 + (ms / 1000) as i64, nanos: 0 } }
}

pub fn config(boot: u64, limits: Limits) -> Config {
    Config {
        lease_ms: LEASE_MS,
        grace_ms: LEASE_MS,
        minor_versions: 0..=2,
        delegations: true,
        domain: "example.org".into(),
        numeric_owners: true,
        server_owner: b"server".to_vec(),
        server_scope: b"scope".to_vec(),
        addresses: Vec::new(),
        boot,
        filehandle_key: [5; 32],
        implementation: None,
        limits,
    }
}

pub fn flavour_access(flavour: Flavour) -> FlavourAccess {
    let squash = Squash { who: SquashWho::Nobody, anonymous_uid: 65_534, anonymous_gid: 65_534 };
    FlavourAccess {
        flavour,
        read_only: false,
        squash,
        secure_port: false,
        machine_writes: false,
        transport_min: Transport::Clear,
    }
}

pub fn sys_access() -> ClientAccess {
    ClientAccess { flavours: vec![flavour_access(Flavour::Sys)], qos: None }
}

pub fn export(id: u32, path: &[&str], files: &Arc<MemoryFs>, access: ClientAccess) -> Export {
    Export {
        id: ExportId(id),
        pseudo_path: path.iter().map(|part| part.as_bytes().to_vec()).collect(),
        fsid: None,
        source: format!("memory {id}").into(),
        file_system: files.clone(),
        sync: true,
        clients: Arc::new(AllowAll(Arc::new(access))),
        locations: crate::Locations::default(),
        delegations: true,
        acls: true,
        xattrs: true,
        labels: false,
        uncacheable: false,
        quota: None,
        data_servers: Vec::new(),
    }
}

pub fn server(
    files: &Arc<MemoryFs>,
    boot: u64,
    limits: Limits,
    recovered: Recovered,
    now: Now,
) -> Server {
    let exports = Exports::new(vec![export(1, &["export"], files, sys_access())])
        .expect("a single export cannot conflict");
    Server::new(
        config(boot, limits),
        exports,
        Arc::new(NumericIdentity),
        Arc::new(NoObserver),
        recovered,
        [boot as u8; 32],
        now,
    )
}

#[derive(Debug)]
struct NumericIdentity;

impl Identity for NumericIdentity {
    fn caller(
        &self,
        principal: &Principal,
        _: SocketAddr,
        _: &Squash,
        _: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered> {
        Ok(match principal {
            Principal::Sys { uid, gid, gids } => {
                Some(Arc::new(Caller::new(*uid, *gid, gids.iter().copied())))
            }
            _ => None,
        })
    }

    fn user_name(&self, _: u32, _: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        Ok(None)
    }

    fn group_name(&self, _: u32, _: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        Ok(None)
    }

    fn uid(&self, _: &str, _: Blocking) -> Result<Option<u32>, Unanswered> {
        Ok(None)
    }

    fn gid(&self, _: &str, _: Blocking) -> Result<Option<u32>, Unanswered> {
        Ok(None)
    }
}

#[derive(Debug)]
struct AllowAll(Arc<ClientAccess>);

impl ClientMatcher for AllowAll {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        Some(self.0.clone())
    }

    fn demands_tls(&self) -> bool {
        self.0.flavours.iter().any(|under| under.transport_min > Transport::Clear)
    }
}
