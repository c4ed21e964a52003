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
const BYTES: usize = 18;
const DIRECTORIES: std::ops::Range<u8> = 10..12;

type Key = (usize, usize, u8);

#[derive(Default)]
struct Model {
    opens: HashMap<Key, (u32, u32, Stateid)>,
    locks: HashMap<Key, ([u8; BYTES], Stateid)>,
    delegations: HashMap<(usize, u8), (bool, Stateid)>,
    /// Directory, client, time.
    changes: Vec<(u8, usize, u64)>,
    /// Directory, time.
    recalls: Vec<(u8, u64)>,
}

impl Model {
    fn share_conflicts(&self, key: Key, access: u32, deny: u32) -> bool {
        self.opens
            .iter()
            .any(|(other, open)| other.2 == key.2 && (access & open.1 != 0 || deny & open.0 != 0))
    }

    fn delegation_conflicts(&self, client: usize, file: u8, access: u32, deny: u32) -> bool {
        let changes = access & 2 != 0 || deny & 1 != 0;
        self.delegations
            .iter()
            .any(|(&(other, of), &(write, _))| other != client && of == file && (write || changes))
    }

    fn lock_conflicts(&self, key: Key, bytes: std::ops::Range<usize>, exclusive: bool) -> bool {
        let others = self.locks.iter().filter(|(other, _)| **other != key && other.2 == key.2);
        others.into_iter().any(|(_, (held, _))| {
            held[bytes.clone()].iter().any(|&mode| mode == 2 || mode == 1 && exclusive)
        })
    }

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

fn lock_owner(owner: usize) -> [u8; 2] {
    [b'l', owner as u8]
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
                let key = (client, owner, number);
                let want = if want { Want::Any } else { Want::No };
                let outcome = fixture.open_as(
                    &peers[client],
                    OWNERS[owner],
                    number,
                    share(access, deny),
                    Claim::New,
                    want,
                );
                if model.share_conflicts(key, access, deny) {
                    prop_assert_eq!(outcome, Err(Status::SHARE_DENIED));
                } else if model.delegation_conflicts(client, number, access, deny) {
                    prop_assert_eq!(outcome, Err(Status::DELAY));
                } else {
                    let opened = outcome.expect("no conflict");
                    let open = model.opens.entry(key).or_insert((0, 0, opened.stateid));
                    *open = (open.0 | access, open.1 | deny, opened.stateid);
                    let granted = match opened.delegation {
                        Granted::Read(stateid) => Some((false, stateid)),
                        Granted::Write(stateid) => Some((true, stateid)),
                        Granted::None | Granted::Refused(_) => None,
                    };
                    if let Some((write, stateid)) = granted {
                        let before = model.delegations.insert((client, number), (write, stateid));
                        prop_assert!(before.is_none(), "one delegation per client and file");
                        let of_file = |other: &Key| other.2 == number;
                        let writers = model
                            .opens
                            .iter()
                            .any(|(other, open)| of_file(other) && open.0 & 2 != 0);
                        let others =
                            model.opens.keys().any(|other| of_file(other) && other.0 != client);
                        let held = model.delegations.iter().any(|(key, held)| {
                            key.1 == number && key.0 != client && (write || held.0)
                        });
                        prop_assert!(
                            !held && (if write { !others } else { !writers }),
                            "no conflict"
                        );
                    }
                }
            }
            Step::Close { client, owner, file: number } => {
                let key = (client, owner, number);
                let Some((_, _, stateid)) = model.opens.get(&key).copied() else { continue };
                let held = model
                    .locks
                    .get(&key)
                    .is_some_and(|(bytes, _)| bytes.iter().any(|&mode| mode > 0));
                let outcome = fixture.state.close(
                    Some(peers[client].client),
                    &stateid,
                    &file(number),
                    fixture.now,
                );
                if held {
                    prop_assert_eq!(outcome, Err(Status::LOCKS_HELD));
                } else {
                    prop_assert!(outcome.is_ok());
                    model.opens.remove(&key);
                    model.locks.remove(&key);
                }
            }
            Step::Lock { client, owner, file: number, first, len, exclusive, wait } => {
                let key = (client, owner, number);
                let Some((access, _, open)) = model.opens.get(&key).copied() else { continue };
                let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
                let by = LockBy::New {
                    open: &open,
                    owner: &lock_owner(owner),
                    seq: vouch_nfs4::OwnerSeq(0),
                };
                let range = Range::new(first, len).unwrap();
                let call = LockCall {
                    client: Some(peers[client].client),
                    file: file(number),
                    by,
                    range,
                    mode,
                    wait,
                    reclaim: false,
                };
                let outcome = fixture.state.lock(&call, fixture.now);
                let bytes = first as usize..(first + len) as usize;
                if access & (if exclusive { 2 } else { 1 }) == 0 {
                    prop_assert_eq!(outcome, Err(Status::OPENMODE.into()));
                } else if model.lock_conflicts(key, bytes.clone(), exclusive) {
                    prop_assert!(matches!(outcome, Err(LockError::Denied(_))));
                } else if wait && matches!(outcome, Err(LockError::Denied(_))) {
                    fixture.advance(2001);
                } else {
                    let stateid = outcome.expect("no conflict");
                    let lock = model.locks.entry(key).or_insert(([0; BYTES], stateid));
                    lock.0[bytes].fill(1 + u8::from(exclusive));
                    lock.1 = stateid;
                }
            }
            Step::Unlock { client, owner, file: number, first, len } => {
                let Some((bytes, stateid)) = model.locks.get_mut(&(client, owner, number)) else {
                    continue;
                };
                let range = Range::new(first, len).unwrap();
                *stateid = fixture
                    .state
                    .unlock(Some(peers[client].client), stateid, &file(number), range, fixture.now)
                    .expect("a held lock");
                bytes[first as usize..(first + len) as usize].fill(0);
            }
            Step::Return { client, file: number } => {
                let Some((_, stateid)) = model.delegations.remove(&(client, number)) else {
                    continue;
                };
                prop_assert_eq!(
                    fixture.state.return_delegation(
                        Some(peers[client].client),
                        &stateid,
                        &file(number),
                        fixture.now
                    ),
                    Ok(())
                );
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
                        model.delegations.insert((client, directory), (false, stateid));
                    }
                    None => {
                        prop_assert!(held || !model.is_directory_calm(directory, fixture.now))
                    }
                }
            }
            Step::ChangeDirectory { client, directory } => {
                let by = Some(peers[client].client);
                let name = AccessWithoutOpen::Name;
                let outcome =
                    fixture.state.recall_for_access(&file(directory), by, name, fixture.now);
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
