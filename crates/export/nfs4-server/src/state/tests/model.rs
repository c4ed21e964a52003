use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::state::limits::{CHANGE_MEMORY_MS, CONFLICT_MEMORY_MS};

#[derive(Clone, Debug)]
enum Step {
    Open {
        client: usize,
        owner: usize,
        file: u8,
        access: u32,
        deny: u32,
        want: bool,
    },
    Close {
        client: usize,
        owner: usize,
        file: u8,
    },
    Lock {
        client: usize,
        owner: usize,
        file: u8,
        first: u64,
        len: u64,
        exclusive: bool,
        wait: bool,
    },
    Unlock {
        client: usize,
        owner: usize,
        file: u8,
        first: u64,
        len: u64,
    },
    Return {
        client: usize,
        file: u8,
    },
    DelegateDirectory {
        client: usize,
        directory: u8,
    },
    ChangeDirectory {
        client: usize,
        directory: u8,
    },
    Restart {
        client: usize,
    },
    Pass,
}

fn step() -> impl Strategy<Value = Step> {
    let (client, owner, file, directory) = (0usize..3, 0usize..2, 0u8..3, DIRECTORIES);
    prop_oneof![
        6 => (client.clone(), owner.clone(), file.clone(), 1u32..4, prop_oneof![3 => Just(0u32), 1 => 0u32..4], any::<bool>())
            .prop_map(|(client, owner, file, access, deny, want)| Step::Open { client, owner, file, access, deny, want }),
        2 => (client.clone(), owner.clone(), file.clone()).prop_map(|(client, owner, file)| Step::Close { client, owner, file }),
        4 => (client.clone(), owner.clone(), file.clone(), 0u64..12, 1u64..6, any::<bool>(), any::<bool>())
            .prop_map(|(client, owner, file, first, len, exclusive, wait)| Step::Lock { client, owner, file, first, len, exclusive, wait }),
        3 => (client.clone(), owner.clone(), file.clone(), 0u64..12, 1u64..6)
            .prop_map(|(client, owner, file, first, len)| Step::Unlock { client, owner, file, first, len }),
        3 => (client.clone(), prop_oneof![file, directory.clone()]).prop_map(|(client, file)| Step::Return { client, file }),
        3 => (client.clone(), directory.clone()).prop_map(|(client, directory)| Step::DelegateDirectory { client, directory }),
        1 => (client.clone(), directory).prop_map(|(client, directory)| Step::ChangeDirectory { client, directory }),
        1 => client.prop_map(|client| Step::Restart { client }),
        1 => Just(Step::Pass),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const OWNERS: [&str; 2] = ["x", "y"];
const LOCK_OWNERS: [&str; 2] = ["lx", "ly"];
const DIRECTORIES: std::ops::Range<u8> = 10..12;

type Key = (usize, usize, u8);

/// Conflicts of opens, locks and delegations of files: tests/model of the server.
#[derive(Default)]
struct Model {
    opens: HashMap<Key, Stateid>,
    locks: HashMap<Key, Stateid>,
    delegations: HashMap<(usize, u8), Stateid>,
    /// Directory, client, time.
    changes: Vec<(u8, usize, u64)>,
    /// Directory, time.
    recalls: Vec<(u8, u64)>,
}

impl Model {
    fn is_directory_delegated_beside(&self, client: usize, directory: u8) -> bool {
        self.delegations.keys().any(|&(other, of)| other != client && of == directory)
    }

    fn is_directory_changed_by_others(&self, client: usize, directory: u8, since: u64) -> bool {
        let recent = |&&(of, _, at): &&(u8, usize, u64)| of == directory && at > since;
        self.changes.iter().filter(recent).any(|&(_, by, _)| by != client)
    }

    fn is_directory_calm(&self, directory: u8, now: u64) -> bool {
        let recent = |at: u64, ms: u64| now < at + ms;
        !self.changes.iter().any(|&(of, _, at)| of == directory && recent(at, CHANGE_MEMORY_MS))
            && !self
                .recalls
                .iter()
                .any(|&(of, at)| of == directory && recent(at, CONFLICT_MEMORY_MS))
    }

    fn forget(&mut self, client: usize) {
        self.opens.retain(|key, _| key.0 != client);
        self.locks.retain(|key, _| key.0 != client);
        self.delegations.retain(|key, _| key.0 != client);
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut fixture = Fixture::new();
    let mut boots = [1u8; 3];
    let mut peers = [0, 1, 2].map(|at| fixture.peer(NAMES[at]));
    let mut model = Model::default();
    let mut callbacks = Vec::new();
    for step in steps {
        for peer in &mut peers {
            prop_assert!(fixture.renew_lease(peer).is_ok());
        }
        match step {
            Step::Open { client, owner, file: number, access, deny, want } => {
                let (peer, share) = (&peers[client], share(access, deny));
                let want = if want { Want::Any } else { Want::No };
                let owned = OWNERS[owner];
                if let Ok(opened) = fixture.open_as(peer, owned, number, share, Claim::New, want) {
                    model.opens.insert((client, owner, number), opened.stateid);
                    if let Granted::Read(stateid) | Granted::Write(stateid) = opened.delegation {
                        let before = model.delegations.insert((client, number), stateid);
                        prop_assert!(before.is_none(), "one delegation per client and file");
                    }
                }
            }
            Step::Close { client, owner, file: number } => {
                let key = (client, owner, number);
                let Some(stateid) = model.opens.get(&key) else { continue };
                if fixture.close(&peers[client], stateid, number).is_ok() {
                    model.opens.remove(&key);
                    model.locks.remove(&key);
                }
            }
            Step::Lock { client, owner, file: number, first, len, exclusive, wait } => {
                let key = (client, owner, number);
                let Some(open) = model.opens.get(&key) else { continue };
                let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
                let (peer, range, name) = (&peers[client], (first, len), LOCK_OWNERS[owner]);
                match fixture.lock_call(peer, open, name, number, range, mode, wait, false) {
                    Ok(stateid) => drop(model.locks.insert(key, stateid)),
                    Err(_) => fixture.advance(2001),
                }
            }
            Step::Unlock { client, owner, file: number, first, len } => {
                let Some(stateid) = model.locks.get_mut(&(client, owner, number)) else { continue };
                let range = (first, len);
                *stateid =
                    fixture.unlock(&peers[client], stateid, number, range).expect("a held lock");
            }
            Step::Return { client, file: number } => {
                let Some(stateid) = model.delegations.remove(&(client, number)) else { continue };
                let returned = fixture.return_delegation(&peers[client], &stateid, number);
                prop_assert_eq!(returned, Ok(()));
            }
            Step::DelegateDirectory { client, directory } => {
                let call = directory_call(&peers[client], directory);
                let granted =
                    fixture.state.delegate_directory(&call, fixture.handle.clone(), fixture.now);
                let held = model.delegations.contains_key(&(client, directory));
                match granted {
                    Some(stateid) => {
                        let since = fixture.now.saturating_sub(CHANGE_MEMORY_MS);
                        prop_assert!(!held, "one delegation per client and directory");
                        prop_assert!(
                            !model.is_directory_changed_by_others(client, directory, since)
                        );
                        model.delegations.insert((client, directory), stateid);
                    }
                    None => {
                        prop_assert!(held || !model.is_directory_calm(directory, fixture.now))
                    }
                }
            }
            Step::ChangeDirectory { client, directory } => {
                let name = AccessWithoutOpen::Name;
                let outcome = fixture.recall_for_access(directory, &peers[client], name);
                let is_held = model.is_directory_delegated_beside(client, directory);
                prop_assert_eq!(outcome, if is_held { Err(Status::DELAY) } else { Ok(()) });
                model.changes.push((directory, client, fixture.now));
                if is_held {
                    model.recalls.push((directory, fixture.now));
                }
            }
            Step::Restart { client } => {
                boots[client] = if boots[client] == 1 { 2 } else { 1 };
                peers[client] = fixture.reclaiming_peer(NAMES[client], boots[client]);
                fixture.state.reclaim_complete(peers[client].client, false).unwrap();
                model.forget(client);
            }
            Step::Pass => fixture.advance(1000),
        }
        callbacks.extend(fixture.callbacks());
        let totals = fixture.state.totals();
        prop_assert_eq!(
            (totals.opens, totals.delegations),
            (model.opens.len(), model.delegations.len())
        );
        prop_assert_eq!(fixture.open_files(), model.opens.len() + model.delegations.len());
        let of_files: usize =
            fixture.state.files.table.iter().map(|(_, file)| file.locks.len()).sum();
        prop_assert_eq!(totals.locks, of_files);
    }
    for peer in peers {
        fixture.state.revoke_client(peer.id);
    }
    callbacks.extend(fixture.callbacks());
    for callback in callbacks {
        fixture.state.callback_done(callback.id, CallbackAnswer::Unreachable, fixture.now);
    }
    prop_assert_eq!(fixture.state.callbacks.len(), 0);
    prop_assert_eq!(
        Totals { name_conflicts: 0, delegations_revoked: 0, ..fixture.state.totals() },
        Totals::default()
    );
    prop_assert_eq!(
        (fixture.state.states.len(), fixture.state.owners.len(), fixture.state.files.table.len()),
        (0, 0, 0)
    );
    prop_assert_eq!(fixture.open_files(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn state_agrees_with_models(steps in prop::collection::vec(step(), 1..120)) {
        run(steps)?;
    }

    #[test]
    fn lease_of_client_without_state_ends_after_silence(silences in prop::collection::vec(1u64..LEASE_MS * 2, 1..20)) {
        let (mut fixture, [mut holder, mut idle]) = Fixture::with_peers(["holder", "idle"]);
        fixture.open(&holder, 1, 1, 0).unwrap();
        for silence in silences {
            fixture.advance(silence);
            prop_assert!(fixture.renew_lease(&mut holder).is_ok(), "no conflicting request");
            prop_assert_eq!(fixture.renew_lease(&mut idle).is_ok(), silence < LEASE_MS);
            if silence >= LEASE_MS {
                idle = fixture.peer("idle");
            }
        }
    }
}
