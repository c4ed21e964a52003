//! Orders of an administrator to the running server: list state, end it, drain.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::ClientId;
use vouch_vfs::{Blocking, Caller, FileId, Name, Quota};

use super::Server;
use super::export_change::Replaced;
use crate::ExportId;
use crate::pseudo_fs::Site;
use crate::state::{ClientEnd, FileKey, HOLDINGS_AT_ONCE, HeldKind, StateRow};

/// A state that a client holds on a file.
#[derive(Clone, Debug)]
pub struct HeldState {
    pub client: u64,
    pub source: Arc<str>,
    /// Below the export's directory. `None` if the file system does not know it.
    pub path: Option<Vec<u8>>,
    pub kind: HeldKind,
}

impl Server {
    /// At most `rows_max` states, of all clients or of one. Blocks on the file systems. O(n) in all
    /// state.
    pub fn held_states(&self, client: Option<u64>, rows_max: usize) -> Vec<HeldState> {
        let mut rows: Vec<StateRow> = Vec::new();
        for from in (0..).step_by(HOLDINGS_AT_ONCE) {
            let Some(part) = self.state.lock().rows(from) else { break };
            let is_wanted = |row: &StateRow| client.is_none_or(|client| row.client.0 == client);
            rows.extend(part.into_iter().filter(is_wanted));
            rows.truncate(rows_max);
            if rows.len() == rows_max {
                break;
            }
        }
        let tree = self.tree();
        let mut paths: HashMap<(ExportId, FileId), Option<Vec<u8>>> = HashMap::new();
        let shown = |StateRow { client, file, kind }: StateRow| {
            let site = tree.site(file.export)?;
            let path = paths
                .entry((file.export, file.file))
                .or_insert_with(|| site.export.file_system.path(&file.file))
                .clone();
            Some(HeldState { client: client.0, source: site.export.source.clone(), path, kind })
        };
        rows.into_iter().filter_map(shown).collect()
    }

    /// Ids of the clients that introduced themselves from this address. O(n) in clients.
    pub fn clients_at(&self, address: IpAddr) -> Vec<u64> {
        self.state.lock().clients_at(address)
    }

    /// Ends the client with all its state. It may return with a new id. `None` if the id is unknown.
    pub fn evict_client(&self, id: u64) -> Option<Replaced> {
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let now_ms = self.now.lock().mono_ms;
        self.with_state(&mut replaced.effects, now_ms, |state| state.revoke_client(ClientId(id)))
            .then_some(replaced)
    }

    /// Ends all state on one file, which is named from the export's directory, or with no names on all
    /// files of the export. `None` if the export is unknown. Blocks on the file system. O(n) in all
    /// state.
    pub fn end_state_on(
        &self,
        export: ExportId,
        names: &[&[u8]],
    ) -> Option<vouch_vfs::Result<Replaced>> {
        let tree = self.tree();
        let site = tree.site(export)?;
        let file_system = &site.export.file_system;
        let (caller, mut file) = (Caller::root(), file_system.root());
        for name in names {
            let Some(name) = Name::new(name) else { return Some(Err(vouch_vfs::Error::NotFound)) };
            match file_system.lookup(&caller, &file, name, Blocking::Allowed) {
                Ok((found, _)) => file = found,
                Err(error) => return Some(Err(error)),
            }
        }
        let file = FileKey::new(export, file, file_system.home(&file));
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let _turn = self.ending.lock();
        self.end_where(
            &mut replaced,
            |_, _| ClientEnd::ByAdministrator,
            |held, _| match names.is_empty() {
                true => held.export() == export,
                false => held.file == file,
            },
        );
        Some(Ok(replaced))
    }

    /// Puts `quota=` of the exports in force. Returns the sources whose file systems refuse. Blocks on
    /// the file systems.
    pub fn apply_quotas(&self) -> Vec<(Arc<str>, vouch_vfs::Error)> {
        let tree = self.tree();
        let refused = |site: &Arc<Site>| {
            let export = &site.export;
            let error = export.file_system.set_quota(export.quota).err()?;
            Some((export.source.clone(), error))
        };
        tree.sites().filter_map(refused).collect()
    }

    /// Space of the exports with `quota=`, in the order of their sources.
    pub fn quotas(&self) -> Vec<(ExportId, Arc<str>, Quota)> {
        let tree = self.tree();
        let of = |site: &Arc<Site>| {
            let export = &site.export;
            Some((export.id, export.source.clone(), export.file_system.quota()?))
        };
        let mut quotas: Vec<_> = tree.sites().filter_map(of).collect();
        quotas.sort_by(|one, other| one.1.cmp(&other.1));
        quotas
    }

    /// While it drains, the server takes no new clients (DELAY) and serves those that it has.
    pub fn set_draining(&self, is_draining: bool) {
        self.state.lock().set_draining(is_draining);
    }
}
