use super::*;

impl Simulation {
    pub(super) fn apply(&mut self, step: &Step) {
        self.steps += 1;
        match *step {
            Step::Open { agent, owner, file, access, deny, want } => {
                self.step_open((agent, owner, file), access, deny, want)
            }
            Step::Close { agent, owner, file } => self.step_close((agent, owner, file)),
            Step::Lock { agent, owner, file, first, len, exclusive, wait } => {
                self.step_lock((agent, owner, file), first..first + len, exclusive, wait);
            }
            Step::Unlock { agent, owner, file, first, len } => {
                self.step_unlock((agent, owner, file), first..first + len)
            }
            Step::Write { agent, owner, file, at, value } => {
                self.step_write((agent, owner, file), at, value)
            }
            Step::Read { agent, owner, file } => self.step_read((agent, owner, file)),
            Step::Anonymous { agent, file, write } => self.step_anonymous(agent, file, write),
            Step::Return { agent, file } => self.step_return(agent, file),
            Step::Answer { reachable } => self.step_answer(reachable),
            Step::Replay { agent, slot, fresh_xid } => {
                if self.agent_status[agent].boot == self.driver.boot
                    && !self.is_silent(agent)
                    && let Some((first, again)) =
                        self.agents[agent].replay(&mut self.driver, slot, fresh_xid)
                {
                    assert_eq!(first, again, "a retry gets the first reply");
                }
            }
            Step::RenewLease { agent, complete } => drop(self.ensure_registered(agent, complete)),
            Step::Reconnect { agent, bind } => {
                self.agents[agent].reconnect(&mut self.driver);
                if bind && self.agent_status[agent].boot == self.driver.boot {
                    self.agents[agent].bind(&mut self.driver);
                }
            }
            Step::EndSession { agent } => {
                if self.ensure_registered(agent, true) {
                    self.agents[agent].end_session(&mut self.driver);
                }
            }
            Step::Reboot { agent } => self.step_reboot(agent),
            Step::Pass { ms } => self.driver.advance(ms),
            Step::Restart => self.step_restart(),
        }
        self.apply_elapsed_time();
        self.check();
    }

    fn step_open(&mut self, key: Key, access: u32, deny: u32, want: bool) {
        let (agent, _, file) = key;
        let complete = self.ensure_registered(agent, !self.steps.is_multiple_of(4));
        let grace = self.in_grace();
        let shares = self.held.share_conflicts(file, access, deny);
        let delegations = self.held.delegation_conflicts(
            Some(agent),
            file,
            access & WRITE == 0 && deny & READ == 0,
        );
        let name = FILES[usize::from(file)];
        let want = if want { ShareAccess::WANT_ANY_DELEG } else { ShareAccess(0) };
        let outcome = self.open(key, access, deny, want, OpenClaim::Null(Name(name.as_bytes())));
        if grace || !complete && self.agents[agent].minor > 0 {
            assert_eq!(outcome, Err(Status::GRACE));
            return;
        }
        let (silent, live) = self.split_silent(shares);
        if !live.is_empty() {
            assert_eq!(outcome, Err(Status::SHARE_DENIED));
            return;
        }
        self.lose_state(silent);
        let (silent, live) = self.split_silent(delegations);
        self.lose_state(silent);
        if !live.is_empty() {
            assert_eq!(outcome, Err(Status::DELAY));
            live.into_iter().for_each(|other| self.held.recall(other, file, self.driver.now_ms));
            return;
        }
        assert_eq!(outcome, Ok(()));
    }

    fn step_close(&mut self, key: Key) {
        let (agent, owner, file) = key;
        self.ensure_registered(agent, true);
        let Some(open) = self.held.opens.get(&key) else { return };
        let name = owner_name(owner);
        let args = op::CloseArgs { seq: self.agents[agent].seq(&name), stateid: open.stateid };
        let (status, _) = self.call_on(agent, file, &[Args::Close(args)]);
        self.agents[agent].advance_seqid(&name, status);
        let locked =
            self.held.locks.get(&key).is_some_and(|locks| locks.bytes.iter().any(|&mode| mode > 0));
        if locked {
            assert_eq!(status, Status::LOCKS_HELD);
        } else {
            assert_eq!(status, Status::OK);
            self.held.opens.remove(&key);
            self.held.locks.remove(&key);
        }
    }

    fn step_lock(&mut self, key: Key, bytes: std::ops::Range<usize>, exclusive: bool, wait: bool) {
        let (agent, _, file) = key;
        let complete = self.ensure_registered(agent, !self.steps.is_multiple_of(4));
        let Some(open) = self.held.opens.get(&key).cloned() else { return };
        let grace = self.in_grace();
        let conflicts = self.held.lock_conflicts(key, bytes.clone(), exclusive);
        let status = self.lock(key, bytes, exclusive, wait, false);
        if open.access & if exclusive { WRITE } else { READ } == 0 {
            assert_eq!(status, Status::OPENMODE);
            return;
        }
        if grace || !complete && self.agents[agent].minor > 0 {
            assert_eq!(status, Status::GRACE);
            return;
        }
        let (silent, live) = self.split_silent(conflicts);
        if !live.is_empty() {
            assert_eq!(status, Status::DENIED);
        } else if wait && status == Status::DENIED {
            assert!(self.files_with_waiters.contains(&file));
            self.lose_state(silent);
        } else {
            assert_eq!(status, Status::OK);
            self.lose_state(silent);
        }
        if wait && status == Status::DENIED {
            self.files_with_waiters.insert(file);
        }
    }

    fn step_unlock(&mut self, key: Key, bytes: std::ops::Range<usize>) {
        let (agent, owner, file) = key;
        self.ensure_registered(agent, true);
        let Some(locks) = self.held.locks.get(&key) else { return };
        let name = lock_owner_name(owner);
        let args = op::LockuArgs {
            kind: LockType::Write,
            seq: self.agents[agent].seq(&name),
            stateid: locks.stateid,
            offset: bytes.start as u64,
            length: bytes.len() as u64,
        };
        let (status, list) = self.call_on(agent, file, &[Args::Locku(args)]);
        self.agents[agent].advance_seqid(&name, status);
        let Some(Results::Locku(Ok(ok))) = list.last() else { panic!("{list:?}") };
        let locks = self.held.locks.get_mut(&key).expect("the locks exist");
        locks.stateid = ok.stateid;
        locks.bytes[bytes].fill(0);
    }

    fn step_write(&mut self, key: Key, at: usize, value: u8) {
        let (agent, _, file) = key;
        self.ensure_registered(agent, true);
        let Some(open) = self.held.opens.get(&key).cloned() else { return };
        let data = [value];
        let args = op::WriteArgs {
            stateid: open.stateid,
            offset: at as u64,
            stable: StableHow::FileSync,
            data: Bytes(&data),
        };
        let (status, _) = self.call_on(agent, file, &[Args::Write(args)]);
        if open.access & WRITE == 0 {
            assert_eq!(status, Status::OPENMODE);
        } else {
            assert_eq!(status, Status::OK);
            self.data[usize::from(file)][at] = value;
        }
    }

    fn step_read(&mut self, key: Key) {
        let (agent, _, file) = key;
        self.ensure_registered(agent, true);
        let Some(open) = self.held.opens.get(&key).cloned() else { return };
        let (status, list) = self.call_on(
            agent,
            file,
            &[Args::Read(op::ReadArgs { stateid: open.stateid, offset: 0, count: 100 })],
        );
        if open.access & READ == 0 {
            assert_eq!(status, Status::OPENMODE);
        } else {
            let Some(Results::Read(Ok(ok))) = list.last() else { panic!("{status:?} {list:?}") };
            assert_eq!(*ok.data, self.data[usize::from(file)][..], "READ returns the last WRITE");
        }
    }

    fn step_anonymous(&mut self, agent: usize, file: u8, write: bool) {
        self.ensure_registered(agent, true);
        let grace = self.in_grace();
        let by = (self.agents[agent].minor > 0).then_some(agent);
        let delegations = self.held.delegation_conflicts(by, file, !write);
        let denying = self.held.share_conflicts(file, if write { WRITE } else { READ }, 0);
        let stateid = Stateid::ANONYMOUS;
        let args = match write {
            true => Args::Write(op::WriteArgs {
                stateid,
                offset: 0,
                stable: StableHow::Unstable,
                data: Bytes(b"x"),
            }),
            false => Args::Read(op::ReadArgs { stateid, offset: 0, count: 100 }),
        };
        let (status, _) = self.call_on(agent, file, &[args]);
        if grace {
            assert_eq!(status, Status::GRACE);
            return;
        }
        let (silent, live) = self.split_silent(delegations);
        self.lose_state(silent);
        if !live.is_empty() {
            assert_eq!(status, Status::DELAY);
            live.into_iter().for_each(|other| self.held.recall(other, file, self.driver.now_ms));
            return;
        }
        let (silent, live) = self.split_silent(denying);
        if !live.is_empty() {
            assert_eq!(status, Status::LOCKED);
            return;
        }
        self.lose_state(silent);
        assert_eq!(status, Status::OK);
        if write {
            self.data[usize::from(file)][0] = b'x';
        }
    }

    fn step_return(&mut self, agent: usize, file: u8) {
        self.ensure_registered(agent, true);
        let Some(held) = self.held.delegations.remove(&(agent, file)) else { return };
        let (status, _) = self.call_on(
            agent,
            file,
            &[Args::Delegreturn(op::DelegreturnArgs { stateid: held.stateid })],
        );
        assert_eq!(status, Status::OK);
    }

    fn step_answer(&mut self, reachable: bool) {
        for callback in std::mem::take(&mut self.driver.callbacks) {
            let target = self.agents.iter().position(|agent| match callback.to {
                CallbackTo::Connection(id) => agent.connection.id() == id,
                CallbackTo::Address(address) => {
                    agent.minor == 0 && agent.callback_port() == address.port()
                }
            });
            let Some(agent) = target.filter(|_| reachable) else {
                self.driver.answer(callback.id, Err(Unreachable::Peer));
                continue;
            };
            let (xid, sequence, op) = wire::callback(&callback.record);
            if let Some(Err(status)) =
                sequence.as_ref().map(|args| self.agents[agent].check_cb_seq(args))
            {
                let refused =
                    wire::callback_reply(xid, None, Some(&cb::Results::Sequence(Err(status))));
                self.driver.answer(callback.id, Ok(&refused));
                continue;
            }
            let result = op.map(|op| match op {
                cb::Args::Recall(_) => cb::Results::Recall(Ok(())),
                cb::Args::NotifyLock(_) => cb::Results::NotifyLock(Ok(())),
                other => panic!("unexpected callback: {other:?}"),
            });
            let reply = wire::callback_reply(xid, sequence.as_ref(), result.as_ref());
            self.driver.answer(callback.id, Ok(&reply));
        }
    }

    fn step_reboot(&mut self, agent: usize) {
        self.agents[agent].boot_verifier = self.agents[agent].boot_verifier % 250 + 1;
        let same = self.agents[agent].register(&mut self.driver);
        assert!(!same, "a restarted client gets a new client id");
        drop(self.held.take_agent(agent));
        self.agent_status[agent] = AgentStatus { boot: self.driver.boot, ..AgentStatus::default() };
    }

    fn step_restart(&mut self) {
        let boot = self.driver.boot;
        self.driver.restart();
        self.started_ms = self.driver.now_ms;
        self.files_with_waiters.clear();
        for (agent, &(name, _)) in NAMES.iter().enumerate() {
            let now = self.held.take_agent(agent);
            self.agents[agent].connect_to_restarted(&mut self.driver);
            let is_recorded = self
                .driver
                .is_recorded(&self.agents[agent].record_key(), self.agents[agent].verifier());
            let silent = self.is_silent(agent);
            let agent_status = &mut self.agent_status[agent];
            if agent_status.boot == boot {
                assert!(!(agent_status.lost && is_recorded), "{name} could reclaim lost state");
                let held = !now.opens.is_empty();
                assert!(!held || silent || is_recorded, "{name} has no recovery record");
                agent_status.to_reclaim = now;
            }
            agent_status.may_reclaim = is_recorded;
        }
    }

    fn apply_elapsed_time(&mut self) {
        let agents = &self.agents;
        for (agent, stateid) in
            self.held.take_overdue(self.driver.now_ms, |agent| agents[agent].last_renewal_ms)
        {
            if self.agents[agent].minor > 0 {
                self.agent_status[agent].revoked.insert(stateid.other);
            }
        }
        let can_be_reclaimed = self.agent_status.iter().any(|agent_status| {
            agent_status.boot != self.driver.boot
                && agent_status.may_reclaim
                && !agent_status.to_reclaim.opens.is_empty()
        });
        let is_early = self.driver.now_ms < self.started_ms + LEASE_MS;
        assert!(
            !(can_be_reclaimed && is_early) || self.in_grace(),
            "grace lasts while a client may reclaim"
        );
        assert!(is_early || !self.in_grace(), "grace ends after a lease");
    }

    fn check(&mut self) {
        let report = self.driver.server.status(self.driver.now());
        let by_id: BTreeMap<u64, _> =
            report.clients.iter().map(|client| (client.id, client)).collect();
        for (at, agent) in self.agents.iter().enumerate() {
            if self.agent_status[at].boot != self.driver.boot || self.is_silent(at) {
                continue;
            }
            let counts = by_id
                .get(&agent.id.0)
                .map(|client| (client.opens, client.locks, client.delegations));
            assert_eq!(
                counts,
                Some(self.held.counts(at)),
                "{}: opens, locks, delegations",
                NAMES[at].0
            );
        }
        let (totals, _) = self.driver.server.totals(self.driver.now());
        let sum = |pick: fn(&vouch_nfs4_server::ClientReport) -> usize| {
            report.clients.iter().map(pick).sum::<usize>()
        };
        assert_eq!(totals.opens, sum(|client| client.opens));
        assert_eq!(totals.locks, sum(|client| client.locks));
        assert_eq!(totals.delegations, sum(|client| client.delegations));
        assert_eq!(totals.sessions, sum(|client| client.sessions));
        assert!(report.clients.len() <= 2 * self.agents.len());
        assert!(self.driver.records() <= self.agents.len());
        assert!(
            self.driver.files.open_count() <= self.agents.len() * FILES.len() * 3 + 2 * FILES.len()
        );
    }

    pub(super) fn finish(mut self) {
        self.driver.advance(25 * 3600 * 1000);
        self.step_answer(false);
        self.driver.advance(LEASE_MS);
        assert!(
            self.driver.server.status(self.driver.now()).clients.is_empty(),
            "no client remains"
        );
        assert_eq!(self.driver.files.open_count(), 0, "no file remains open");
    }
}
