//! One step each.

use super::*;

impl World {
    pub(super) fn take(&mut self, step: &Step) {
        self.steps += 1;
        match *step {
            Step::Open { agent, owner, file, access, deny, want } => self.step_open((agent, owner, file), access, deny, want),
            Step::Close { agent, owner, file } => self.step_close((agent, owner, file)),
            Step::Lock { agent, owner, file, first, len, exclusive, wait } => {
                self.step_lock((agent, owner, file), first..first + len, exclusive, wait);
            }
            Step::Unlock { agent, owner, file, first, len } => self.step_unlock((agent, owner, file), first..first + len),
            Step::Write { agent, owner, file, at, value } => self.step_write((agent, owner, file), at, value),
            Step::Read { agent, owner, file } => self.step_read((agent, owner, file)),
            Step::Anonymous { agent, file, write } => self.step_anonymous(agent, file, write),
            Step::Return { agent, file } => self.step_return(agent, file),
            Step::Answer { reachable } => self.step_answer(reachable),
            Step::Replay { agent, slot, fresh_xid } => {
                // One that was silent asks first what is left of what it held.
                if self.standing[agent].boot == self.net.boot
                    && !self.is_silent(agent)
                    && let Some((first, again)) = self.agents[agent].replay(&mut self.net, slot, fresh_xid)
                {
                    assert_eq!(first, again, "a call that comes again is answered as before");
                }
            }
            Step::Hello { agent, complete } => drop(self.contact(agent, complete)),
            Step::Reconnect { agent, bind } => {
                self.agents[agent].reconnect(&mut self.net);
                if bind && self.standing[agent].boot == self.net.boot {
                    self.agents[agent].bind(&mut self.net);
                }
            }
            Step::EndSession { agent } => {
                if self.contact(agent, true) {
                    self.agents[agent].end_session(&mut self.net);
                }
            }
            Step::Reboot { agent } => self.step_reboot(agent),
            Step::Pass { ms } => self.net.pass(ms),
            Step::Restart => self.step_restart(),
        }
        self.see_time();
        self.check();
    }

    fn step_open(&mut self, key: Key, access: u32, deny: u32, want: bool) {
        let (agent, _, file) = key;
        let complete = self.contact(agent, !self.steps.is_multiple_of(4));
        let grace = self.in_grace();
        let shares = self.held.share_conflicts(file, access, deny);
        let delegations = self.held.delegation_conflicts(Some(agent), file, access & WRITE == 0 && deny & READ == 0);
        let name = FILES[usize::from(file)];
        let wish = if want { ShareAccess::WANT_ANY_DELEG } else { ShareAccess(0) };
        let outcome = self.open(key, access, deny, wish, OpenClaim::Null(Name(name.as_bytes())));
        if grace || !complete && self.agents[agent].minor > 0 {
            assert_eq!(outcome, Err(Status::GRACE));
            return;
        }
        let (silent, live) = self.split(shares);
        if !live.is_empty() {
            assert_eq!(outcome, Err(Status::SHARE_DENIED));
            return;
        }
        self.bury(silent);
        let (silent, live) = self.split(delegations);
        self.bury(silent);
        if !live.is_empty() {
            assert_eq!(outcome, Err(Status::DELAY));
            live.into_iter().for_each(|other| self.held.recall(other, file, self.net.now_ms));
            return;
        }
        assert_eq!(outcome, Ok(()));
    }

    fn step_close(&mut self, key: Key) {
        let (agent, owner, file) = key;
        self.contact(agent, true);
        let Some(open) = self.held.opens.get(&key) else { return };
        let name = owner_name(owner);
        let args = op::CloseArgs { seq: self.agents[agent].seq(&name), stateid: open.stateid };
        let (status, _) = self.call_on(agent, file, &[Args::Close(args)]);
        self.agents[agent].count(&name, status);
        let locked = self.held.locks.get(&key).is_some_and(|locks| locks.bytes.iter().any(|&mode| mode > 0));
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
        let complete = self.contact(agent, !self.steps.is_multiple_of(4));
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
        let (silent, live) = self.split(conflicts);
        if !live.is_empty() {
            assert_eq!(status, Status::DENIED);
        } else if wait && status == Status::DENIED {
            // Kept for another that waited longer.
            assert!(self.awaited.contains(&file));
            self.bury(silent);
        } else {
            assert_eq!(status, Status::OK);
            self.bury(silent);
        }
        if wait && status == Status::DENIED {
            self.awaited.insert(file);
        }
    }

    fn step_unlock(&mut self, key: Key, bytes: std::ops::Range<usize>) {
        let (agent, owner, file) = key;
        self.contact(agent, true);
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
        self.agents[agent].count(&name, status);
        let Some(Results::Locku(Ok(ok))) = list.last() else { panic!("{list:?}") };
        let locks = self.held.locks.get_mut(&key).expect("it has just been seen");
        locks.stateid = ok.stateid;
        locks.bytes[bytes].fill(0);
    }

    fn step_write(&mut self, key: Key, at: usize, value: u8) {
        let (agent, _, file) = key;
        self.contact(agent, true);
        let Some(open) = self.held.opens.get(&key).cloned() else { return };
        let data = [value];
        let args = op::WriteArgs { stateid: open.stateid, offset: at as u64, stable: StableHow::FileSync, data: Bytes(&data) };
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
        self.contact(agent, true);
        let Some(open) = self.held.opens.get(&key).cloned() else { return };
        let (status, list) = self.call_on(agent, file, &[Args::Read(op::ReadArgs { stateid: open.stateid, offset: 0, count: 100 })]);
        if open.access & READ == 0 {
            assert_eq!(status, Status::OPENMODE);
        } else {
            let Some(Results::Read(Ok(ok))) = list.last() else { panic!("{status:?} {list:?}") };
            assert_eq!(*ok.data, self.data[usize::from(file)][..], "what was written last is read");
        }
    }

    /// I/O without an open.
    fn step_anonymous(&mut self, agent: usize, file: u8, write: bool) {
        self.contact(agent, true);
        let grace = self.in_grace();
        let by = (self.agents[agent].minor > 0).then_some(agent);
        let delegations = self.held.delegation_conflicts(by, file, !write);
        let denying = self.held.share_conflicts(file, if write { WRITE } else { READ }, 0);
        let stateid = Stateid::ANONYMOUS;
        let args = match write {
            true => Args::Write(op::WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data: Bytes(b"x") }),
            false => Args::Read(op::ReadArgs { stateid, offset: 0, count: 100 }),
        };
        let (status, _) = self.call_on(agent, file, &[args]);
        if grace {
            assert_eq!(status, Status::GRACE);
            return;
        }
        let (silent, live) = self.split(delegations);
        self.bury(silent);
        if !live.is_empty() {
            assert_eq!(status, Status::DELAY);
            live.into_iter().for_each(|other| self.held.recall(other, file, self.net.now_ms));
            return;
        }
        let (silent, live) = self.split(denying);
        if !live.is_empty() {
            assert_eq!(status, Status::LOCKED);
            return;
        }
        self.bury(silent);
        assert_eq!(status, Status::OK);
        if write {
            self.data[usize::from(file)][0] = b'x';
        }
    }

    fn step_return(&mut self, agent: usize, file: u8) {
        self.contact(agent, true);
        let Some(held) = self.held.delegations.remove(&(agent, file)) else { return };
        let (status, _) = self.call_on(agent, file, &[Args::Delegreturn(op::DelegreturnArgs { stateid: held.stateid })]);
        assert_eq!(status, Status::OK);
    }

    /// Callbacks arrive at their clients, or don't.
    fn step_answer(&mut self, reachable: bool) {
        // An answer may bring new ones: those wait for the next step.
        for called in std::mem::take(&mut self.net.called) {
            let target = self.agents.iter().position(|agent| match called.to {
                CallbackTo::Connection(id) => agent.connection.id() == id,
                CallbackTo::Address(address) => agent.minor == 0 && agent.callback_port() == address.port(),
            });
            let Some(agent) = target.filter(|_| reachable) else {
                self.net.answer(called.id, Err(Unreachable::Peer));
                continue;
            };
            let (xid, sequence, op) = wire::callback(&called.record);
            if let Some(Err(status)) = sequence.as_ref().map(|args| self.agents[agent].back_turn(args)) {
                let refused = wire::callback_reply(xid, None, Some(&cb::Results::Sequence(Err(status))));
                self.net.answer(called.id, Ok(&refused));
                continue;
            }
            let result = op.map(|op| match op {
                cb::Args::Recall(_) => cb::Results::Recall(Ok(())),
                cb::Args::NotifyLock(_) => cb::Results::NotifyLock(Ok(())),
                other => panic!("nobody asked for this: {other:?}"),
            });
            let reply = wire::callback_reply(xid, sequence.as_ref(), result.as_ref());
            self.net.answer(called.id, Ok(&reply));
        }
    }

    /// The client is another: the server learns of it when it comes.
    fn step_reboot(&mut self, agent: usize) {
        self.agents[agent].life = self.agents[agent].life % 250 + 1;
        let same = self.agents[agent].introduce(&mut self.net);
        assert!(!same, "a new life has a new number");
        drop(self.held.take(agent));
        self.standing[agent] = Standing { boot: self.net.boot, ..Standing::default() };
    }

    fn step_restart(&mut self) {
        let boot = self.net.boot;
        self.net.restart();
        self.started_ms = self.net.now_ms;
        self.awaited.clear();
        for (agent, &(name, _)) in NAMES.iter().enumerate() {
            let now = self.held.take(agent);
            self.agents[agent].cut_off(&mut self.net);
            let recorded = self.net.recorded(&self.agents[agent].record_key(), self.agents[agent].verifier());
            let silent = self.is_silent(agent);
            let standing = &mut self.standing[agent];
            if standing.boot == boot {
                // It was the client of the life that has just ended.
                assert!(!(standing.lost && recorded), "{name} must not take back what another got");
                let held = !now.opens.is_empty();
                assert!(!held || silent || recorded, "{name} may take back what it held");
                standing.past = now;
            }
            standing.may_reclaim = recorded;
        }
    }

    /// What time has done to what is held.
    fn see_time(&mut self) {
        for (agent, stateid) in self.held.overdue(self.net.now_ms) {
            if self.agents[agent].minor > 0 {
                self.standing[agent].revoked.insert(stateid.other);
            }
        }
        // While somebody who has not come may still reclaim, nobody gets anything new.
        let owed =
            self.standing.iter().any(|standing| standing.boot != self.net.boot && standing.may_reclaim && !standing.past.opens.is_empty());
        let early = self.net.now_ms < self.started_ms + LEASE_MS;
        assert!(!(owed && early) || self.in_grace(), "grace lasts as long as somebody may reclaim");
        assert!(early || !self.in_grace(), "grace ends");
    }

    /// The server's own counts are those of the model.
    fn check(&mut self) {
        let report = self.net.server.status(self.net.now());
        let by_id: BTreeMap<u64, _> = report.clients.iter().map(|client| (client.id, client)).collect();
        for (at, agent) in self.agents.iter().enumerate() {
            if self.standing[at].boot != self.net.boot || self.is_silent(at) {
                continue;
            }
            let counts = by_id.get(&agent.id.0).map(|client| (client.opens, client.locks, client.delegations));
            assert_eq!(counts, Some(self.held.counts(at)), "{}: opens, locks, delegations", NAMES[at].0);
        }
        let (totals, _) = self.net.server.totals(self.net.now());
        let sum = |pick: fn(&vouch_nfs4_server::ClientReport) -> usize| report.clients.iter().map(pick).sum::<usize>();
        assert_eq!(totals.opens, sum(|client| client.opens));
        assert_eq!(totals.locks, sum(|client| client.locks));
        assert_eq!(totals.delegations, sum(|client| client.delegations));
        assert_eq!(totals.sessions, sum(|client| client.sessions));
        // Each agent has one client, and at most one that is to replace it.
        assert!(report.clients.len() <= 2 * self.agents.len());
        assert!(self.net.records() <= self.agents.len());
        // An anonymous stateid's file stays open for a moment.
        assert!(self.net.files.open_count() <= self.agents.len() * FILES.len() * 3 + 2 * FILES.len());
    }

    /// Everybody falls silent for good: nothing is left.
    pub(super) fn finish(mut self) {
        self.net.pass(25 * 3600 * 1000);
        self.step_answer(false);
        self.net.pass(LEASE_MS);
        assert!(self.net.server.status(self.net.now()).clients.is_empty(), "clients go");
        assert_eq!(self.net.files.open_count(), 0, "files are closed");
    }
}
