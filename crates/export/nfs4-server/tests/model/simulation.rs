use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vouch_nfs4::op::{
    self, Args, Delegation as Given, LockType, Locker, OpenClaim, OpenHow, Results, SequenceFlags,
    ShareAccess, ShareDeny, StableHow,
};
use vouch_nfs4::{Bytes, Name, StateOwner, Stateid, Status, cb};
use vouch_nfs4_server::{CallbackTo, Unreachable};

use crate::agent::{Agent, CallOutcome, SLOTS};
use crate::driver::{Driver, LEASE_MS};
use crate::held_state::{BYTES, Delegation, HeldState, Key, Locks, Open, READ, WRITE};
use crate::wire;

#[derive(Clone, Debug)]
enum Step {
    Open {
        agent: usize,
        owner: u8,
        file: u8,
        access: u32,
        deny: u32,
        want: bool,
    },
    Close {
        agent: usize,
        owner: u8,
        file: u8,
    },
    Lock {
        agent: usize,
        owner: u8,
        file: u8,
        first: usize,
        len: usize,
        exclusive: bool,
        wait: bool,
    },
    Unlock {
        agent: usize,
        owner: u8,
        file: u8,
        first: usize,
        len: usize,
    },
    Write {
        agent: usize,
        owner: u8,
        file: u8,
        at: usize,
        value: u8,
    },
    Read {
        agent: usize,
        owner: u8,
        file: u8,
    },
    Anonymous {
        agent: usize,
        file: u8,
        write: bool,
    },
    Return {
        agent: usize,
        file: u8,
    },
    Answer {
        reachable: bool,
    },
    Replay {
        agent: usize,
        slot: usize,
        fresh_xid: bool,
    },
    RenewLease {
        agent: usize,
        complete: bool,
    },
    Reconnect {
        agent: usize,
        bind: bool,
    },
    EndSession {
        agent: usize,
    },
    Reboot {
        agent: usize,
    },
    Pass {
        ms: u64,
    },
    Restart,
}

const NAMES: [(&str, u32); 4] = [("old", 0), ("new", 1), ("newest", 2), ("ancient", 0)];
const FILES: [&str; 3] = ["f", "g", "h"];

fn step() -> impl Strategy<Value = Step> {
    let (a, o, f) = (0..NAMES.len(), 0u8..2, 0u8..FILES.len() as u8);
    let key = (a.clone(), o, f.clone());
    let range = (0usize..12, 1usize..6);
    prop_oneof![
        8 => (key.clone(), 1u32..4, prop_oneof![3 => Just(0u32), 1 => 0u32..4], any::<bool>())
            .prop_map(|((agent, owner, file), access, deny, want)| Step::Open { agent, owner, file, access, deny, want }),
        3 => key.clone().prop_map(|(agent, owner, file)| Step::Close { agent, owner, file }),
        5 => (key.clone(), range.clone(), any::<bool>(), any::<bool>())
            .prop_map(|((agent, owner, file), (first, len), exclusive, wait)| Step::Lock { agent, owner, file, first, len, exclusive, wait }),
        3 => (key.clone(), range).prop_map(|((agent, owner, file), (first, len))| Step::Unlock { agent, owner, file, first, len }),
        2 => (key.clone(), 0..BYTES, 1u8..).prop_map(|((agent, owner, file), at, value)| Step::Write { agent, owner, file, at, value }),
        2 => key.prop_map(|(agent, owner, file)| Step::Read { agent, owner, file }),
        2 => (a.clone(), f.clone(), any::<bool>()).prop_map(|(agent, file, write)| Step::Anonymous { agent, file, write }),
        2 => (a.clone(), f).prop_map(|(agent, file)| Step::Return { agent, file }),
        3 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(|reachable| Step::Answer { reachable }),
        4 => (a.clone(), 0..SLOTS, any::<bool>()).prop_map(|(agent, slot, fresh_xid)| Step::Replay { agent, slot, fresh_xid }),
        3 => (a.clone(), any::<bool>()).prop_map(|(agent, complete)| Step::RenewLease { agent, complete }),
        1 => (a.clone(), any::<bool>()).prop_map(|(agent, bind)| Step::Reconnect { agent, bind }),
        1 => a.clone().prop_map(|agent| Step::EndSession { agent }),
        1 => a.prop_map(|agent| Step::Reboot { agent }),
        3 => prop_oneof![3 => 1u64..4_000, 1 => 4_000u64..3 * LEASE_MS].prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ]
}

#[derive(Clone, Default)]
struct AgentStatus {
    boot: u64,
    to_reclaim: HeldState,
    may_reclaim: bool,
    complete: bool,
    lost: bool,
    revoked: BTreeSet<[u8; 12]>,
}

struct Simulation {
    driver: Driver,
    agents: Vec<Agent>,
    agent_status: Vec<AgentStatus>,
    held: HeldState,
    data: Vec<[u8; BYTES]>,
    files_with_waiters: BTreeSet<u8>,
    started_ms: u64,
    steps: usize,
}

fn owner_name(owner: u8) -> [u8; 2] {
    [b'o', owner]
}

fn lock_owner_name(owner: u8) -> [u8; 2] {
    [b'l', owner]
}

impl Simulation {
    fn new() -> Self {
        let mut driver = Driver::new();
        let agents: Vec<Agent> = NAMES
            .iter()
            .enumerate()
            .map(|(at, &(name, minor))| Agent::new(name, at as u16, minor, &mut driver))
            .collect();
        let agent_status = vec![AgentStatus::default(); agents.len()];
        let started_ms = driver.now_ms;
        let data = vec![[0; BYTES]; FILES.len()];
        let mut simulation = Simulation {
            driver,
            agents,
            agent_status,
            held: HeldState::default(),
            data,
            files_with_waiters: BTreeSet::new(),
            started_ms,
            steps: 0,
        };
        simulation.make_files();
        simulation
    }

    fn make_files(&mut self) {
        use vouch_vfs::{Caller, CreateHow, FileSystem as _, OpenAccess, SetAttributes};
        for name in FILES {
            let (root, caller) = (self.driver.files.root(), Caller::root());
            let name = vouch_vfs::Name::new(name.as_bytes()).expect("a valid name");
            let attributes = SetAttributes {
                size: Some(BYTES as u64),
                mode: Some(0o666),
                ..SetAttributes::default()
            };
            let access = OpenAccess { read: true, write: true };
            let made = self.driver.files.create(
                &caller,
                &root,
                name,
                CreateHow::Guarded,
                &attributes,
                access,
            );
            assert!(made.is_ok_and(|made| made.new), "a new file");
        }
    }

    fn is_silent(&self, agent: usize) -> bool {
        self.driver.now_ms >= self.agents[agent].last_renewal_ms + LEASE_MS
    }

    fn in_grace(&self) -> bool {
        self.driver.server.status(self.driver.now()).grace_left_ms > 0
    }

    fn lose_state(&mut self, agents: impl IntoIterator<Item = usize>) {
        for agent in agents {
            assert!(
                self.is_silent(agent),
                "{} lost state to another client within its lease",
                NAMES[agent].0
            );
            drop(self.held.take_agent(agent));
            self.agent_status[agent].lost = true;
        }
    }

    fn split_silent(&self, agents: BTreeSet<usize>) -> (Vec<usize>, Vec<usize>) {
        agents.into_iter().partition(|&agent| self.is_silent(agent))
    }

    fn slot(&self) -> (usize, bool) {
        (self.steps % SLOTS, !self.steps.is_multiple_of(3))
    }

    fn ensure_registered(&mut self, agent: usize, complete: bool) -> bool {
        let was_silent = self.is_silent(agent);
        let boot = self.driver.boot;
        let is_new_boot = self.agent_status[agent].boot != boot;
        if is_new_boot || !self.agents[agent].has_session() && self.agents[agent].minor > 0 {
            self.register_again(agent, is_new_boot, was_silent);
        } else if !self.agents[agent].renew_lease(&mut self.driver) {
            assert!(was_silent, "{} expired within its lease", NAMES[agent].0);
            self.register_again(agent, false, was_silent);
        } else {
            assert!(
                !self.agent_status[agent].lost,
                "the server hides from {} that its state is lost",
                NAMES[agent].0
            );
            if was_silent {
                self.check_delegations(agent);
            }
            self.check_flags(agent);
        }
        self.reclaim(agent);
        if complete {
            self.complete(agent);
        }
        self.agent_status[agent].complete
    }

    fn register_again(&mut self, agent: usize, is_new_boot: bool, was_silent: bool) {
        let same = self.agents[agent].register(&mut self.driver);
        let agent_status = &mut self.agent_status[agent];
        if same {
            assert!(!agent_status.lost && !is_new_boot, "the server still knows a lost client");
            if was_silent {
                self.check_delegations(agent);
            }
            return;
        }
        let previous = self.held.take_agent(agent);
        assert!(
            is_new_boot || was_silent || previous.is_empty() || agent_status.lost,
            "{} lost its state",
            NAMES[agent].0
        );
        agent_status.boot = self.driver.boot;
        agent_status.complete = false;
        agent_status.lost = false;
        agent_status.revoked.clear();
        if !is_new_boot {
            agent_status.to_reclaim = HeldState::default();
            agent_status.may_reclaim = false;
        }
    }

    fn check_delegations(&mut self, agent: usize) {
        let held: Vec<(u8, Stateid)> = self
            .held
            .delegations
            .iter()
            .filter(|(key, _)| key.0 == agent)
            .map(|(key, held)| (key.1, held.stateid))
            .collect();
        for (file, stateid) in held {
            match self.agents[agent].minor {
                0 => {
                    self.call_on(
                        agent,
                        file,
                        &[Args::Delegreturn(op::DelegreturnArgs { stateid })],
                    );
                    self.held.delegations.remove(&(agent, file));
                }
                _ => {
                    let args = op::TestStateidArgs { stateids: vouch_nfs4::List(vec![stateid]) };
                    let (_, list) = self.call_on(agent, file, &[Args::TestStateid(args)]);
                    let Some(Results::TestStateid(Ok(ok))) = list.last() else {
                        panic!("{list:?}")
                    };
                    if ok.statuses.0[0] != Status::OK {
                        assert_eq!(ok.statuses.0[0], Status::DELEG_REVOKED);
                        self.held.delegations.remove(&(agent, file));
                        self.agent_status[agent].revoked.insert(stateid.other);
                    }
                }
            }
        }
    }

    /// RFC 8881 §10.2.1.
    fn check_flags(&mut self, agent: usize) {
        if self.agents[agent].minor == 0 {
            return;
        }
        let is_reported =
            self.agents[agent].flags.contains(SequenceFlags::RECALLABLE_STATE_REVOKED);
        let revoked = std::mem::take(&mut self.agent_status[agent].revoked);
        assert_eq!(is_reported, !revoked.is_empty(), "SEQUENCE reports revoked delegations");
        for other in revoked {
            let stateid = Stateid { seq: vouch_nfs4::StateSeq(0), other };
            let (status, _) =
                self.call_on(agent, 0, &[Args::FreeStateid(op::FreeStateidArgs { stateid })]);
            assert_eq!(status, Status::OK);
        }
    }

    fn reclaim(&mut self, agent: usize) {
        let to_reclaim = std::mem::take(&mut self.agent_status[agent].to_reclaim);
        let is_allowed =
            std::mem::take(&mut self.agent_status[agent].may_reclaim) && self.in_grace();
        for (key, open) in to_reclaim.opens {
            let kind = match to_reclaim.delegations.get(&(agent, key.2)) {
                Some(held) if held.write => op::DelegationType::Write,
                Some(_) => op::DelegationType::Read,
                None => op::DelegationType::None,
            };
            let outcome =
                self.open(key, open.access, open.deny, ShareAccess(0), OpenClaim::Previous(kind));
            match (is_allowed, outcome) {
                (true, outcome) => assert!(
                    outcome.is_ok(),
                    "{} could not reclaim its open: {outcome:?}",
                    NAMES[agent].0
                ),
                (false, outcome) => {
                    assert!(
                        outcome.is_err(),
                        "{} reclaimed state that others is_allowed hold",
                        NAMES[agent].0
                    );
                    return;
                }
            }
        }
        for (key, locks) in to_reclaim.locks {
            for at in (0..BYTES).filter(|&at| locks.bytes[at] > 0) {
                let exclusive = locks.bytes[at] == 2;
                let status = self.lock(key, at..at + 1, exclusive, false, true);
                assert_eq!(status, Status::OK, "{} could not reclaim its lock", NAMES[agent].0);
            }
        }
    }

    fn complete(&mut self, agent: usize) {
        if !std::mem::replace(&mut self.agent_status[agent].complete, true)
            && self.agents[agent].minor > 0
        {
            let args = op::ReclaimCompleteArgs { one_fs: false };
            let CallOutcome::Done(status, _) = self.call(agent, &[Args::ReclaimComplete(args)])
            else {
                panic!("the client has just renewed its lease")
            };
            assert_eq!(status, Status::OK);
        }
    }

    fn call(&mut self, agent: usize, ops: &[Args<'_>]) -> CallOutcome {
        let (slot, cached) = self.slot();
        self.agents[agent].call(&mut self.driver, slot, cached, ops)
    }

    fn call_on(
        &mut self,
        agent: usize,
        file: u8,
        ops: &[Args<'_>],
    ) -> (Status, Vec<Results<'static>>) {
        let mut all = vec![Args::Putrootfh];
        all.extend(
            ["export", FILES[usize::from(file)]]
                .map(|name| Args::Lookup(op::LookupArgs { name: Name(name.as_bytes()) })),
        );
        all.extend_from_slice(ops);
        match self.call(agent, &all) {
            CallOutcome::Done(status, mut list) => (status, list.split_off(3.min(list.len()))),
            CallOutcome::Lost if self.agents[agent].minor == 0 => (Status::EXPIRED, Vec::new()),
            CallOutcome::Lost => panic!("the client has just renewed its lease"),
        }
    }

    fn open(
        &mut self,
        key: Key,
        access: u32,
        deny: u32,
        want: ShareAccess,
        claim: OpenClaim<'static>,
    ) -> Result<(), Status> {
        let (agent, owner, file) = key;
        let (name, v40) = (owner_name(owner), self.agents[agent].minor == 0);
        let want = if v40 { ShareAccess(0) } else { want };
        let args = Args::Open(op::OpenArgs {
            seq: self.agents[agent].seq(&name),
            access: ShareAccess(access) | want,
            deny: ShareDeny(deny),
            owner: StateOwner { client: self.agents[agent].id, owner: Bytes(&name) },
            how: OpenHow::NoCreate,
            claim,
        });
        let (status, mut list) = match claim {
            OpenClaim::Null(_) => {
                let directory =
                    [Args::Putrootfh, Args::Lookup(op::LookupArgs { name: Name(b"export") }), args];
                match self.call(agent, &directory) {
                    CallOutcome::Done(status, list) => (status, list),
                    CallOutcome::Lost => panic!("the client has just renewed its lease"),
                }
            }
            _ => self.call_on(agent, file, &[args]),
        };
        self.agents[agent].advance_seqid(&name, status);
        let Some(Results::Open(Ok(ok))) = list.pop() else { return Err(status) };
        let mut stateid = ok.stateid;
        if ok.flags.contains(op::OpenResultFlags::CONFIRM) {
            assert!(v40, "OPEN_CONFIRM exists in 4.0 only");
            let confirm = Args::OpenConfirm(op::OpenConfirmArgs {
                stateid,
                seq: self.agents[agent].seq(&name),
            });
            let (status, list) = self.call_on(agent, file, &[confirm]);
            self.agents[agent].advance_seqid(&name, status);
            let Some(Results::OpenConfirm(Ok(ok))) = list.last() else { panic!("{list:?}") };
            stateid = ok.stateid;
        }
        let open = self.held.opens.entry(key).or_insert(Open { access: 0, deny: 0, stateid });
        *open = Open { access: open.access | access, deny: open.deny | deny, stateid };
        let given = match ok.delegation {
            Given::Read(given) | Given::ReadAttrs(given) => Some((false, given.stateid)),
            Given::Write(given) | Given::WriteAttrs(given) => Some((true, given.stateid)),
            Given::None | Given::NoneExt(_) => None,
        };
        if let Some((write, stateid)) = given {
            let own_writes = self
                .held
                .opens
                .iter()
                .any(|(key, open)| key.0 == agent && key.2 == file && open.access & WRITE != 0);
            assert!(
                write || !own_writes || matches!(claim, OpenClaim::Previous(_)),
                "a read delegation to a client that writes"
            );
            self.record_delegation(agent, file, write, stateid);
        }
        Ok(())
    }

    fn record_delegation(&mut self, agent: usize, file: u8, write: bool, stateid: Stateid) {
        let given = Delegation { write, stateid, recalled_ms: None };
        let before = self.held.delegations.insert((agent, file), given);
        assert!(before.is_none(), "two delegations of a file for one client");
        let opens = self.held.opens.iter().filter(|(key, open)| {
            key.2 == file && key.0 != agent && (write || open.access & WRITE != 0)
        });
        let mut others: BTreeSet<usize> = opens.map(|(key, _)| key.0).collect();
        others.extend(self.held.delegation_conflicts(Some(agent), file, !write));
        self.lose_state(others);
    }

    fn lock(
        &mut self,
        key: Key,
        bytes: std::ops::Range<usize>,
        exclusive: bool,
        wait: bool,
        reclaim: bool,
    ) -> Status {
        let (agent, owner, file) = key;
        let (open_name, lock_name) = (owner_name(owner), lock_owner_name(owner));
        let Some(open) = self.held.opens.get(&key) else { return Status::BAD_STATEID };
        let v40 = self.agents[agent].minor == 0;
        let existing = self.held.locks.get(&key).filter(|_| v40 || self.steps.is_multiple_of(2));
        let locker = match existing {
            Some(locks) => Locker::Old(op::OldLockOwner {
                lock: locks.stateid,
                seq: self.agents[agent].seq(&lock_name),
            }),
            None => Locker::New(op::NewLockOwner {
                open_seq: self.agents[agent].seq(&open_name),
                open: open.stateid,
                lock_seq: self.agents[agent].seq(&lock_name),
                owner: StateOwner { client: self.agents[agent].id, owner: Bytes(&lock_name) },
            }),
        };
        let kind = match (exclusive, wait) {
            (false, false) => LockType::Read,
            (true, false) => LockType::Write,
            (false, true) => LockType::ReadWait,
            (true, true) => LockType::WriteWait,
        };
        let args = op::LockArgs {
            kind,
            reclaim,
            offset: bytes.start as u64,
            length: bytes.len() as u64,
            locker,
        };
        let (status, list) = self.call_on(agent, file, &[Args::Lock(args)]);
        match locker {
            Locker::Old(_) => self.agents[agent].advance_seqid(&lock_name, status),
            Locker::New(_) => {
                self.agents[agent].advance_seqid(&open_name, status);
                if status.is_ok() {
                    self.agents[agent].advance_seqid(&lock_name, status);
                }
            }
        }
        if let Some(Results::Lock(Ok(ok))) = list.last() {
            let locks = self
                .held
                .locks
                .entry(key)
                .or_insert(Locks { bytes: [0; BYTES], stateid: ok.stateid });
            locks.stateid = ok.stateid;
            locks.bytes[bytes].fill(1 + u8::from(exclusive));
        }
        status
    }
}

mod steps;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn server_agrees_with_model(steps in prop::collection::vec(step(), 1..100)) {
        let mut simulation = Simulation::new();
        steps.iter().for_each(|step| simulation.apply(step));
        simulation.finish();
    }
}
