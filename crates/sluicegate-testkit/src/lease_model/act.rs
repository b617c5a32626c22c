//! The actions of the model and their effects.

use super::world::{Answer, Back, Call, World, moment, timestamp};
use super::{Flaw, Prepared};
use sluicegate::core::algorithm::token_bucket::TokenBucketState;
use sluicegate::core::{Cost, Quota, State, Timestamp};
use sluicegate::store::leases::{Grant, PermitPool};

/// An action. The number is the index of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// One tick passes.
    Tick,
    /// A request arrives and spends a permit.
    Spend(usize),
    /// A request arrives, and a call is sent for it.
    Call(usize),
    /// The same, and the call also requests permits.
    CallForMore(usize),
    /// A call is sent only to prefetch permits.
    Prefetch(usize),
    /// A call arrives at the store.
    Deliver(usize),
    /// A call arrives at the store, its reply is lost, and it is sent again.
    Repeat(usize),
    /// A call is lost or exceeds its deadline.
    LoseCall(usize),
    /// A reply arrives.
    Receive(usize),
    /// A reply is lost, or its instance has given up waiting.
    LoseAnswer(usize),
    /// An instance removes expired permits from its pool to return them.
    Expire(usize),
    /// An instance shuts down and returns its permits.
    Stop(usize),
    /// An instance crashes and restarts.
    Crash(usize),
    /// Returned permits arrive at the store.
    PermitReturn(usize, usize),
    /// Returned permits are lost in transit.
    LoseReturn(usize, usize),
    /// The replica receives all writes.
    Replicate,
    /// The replica becomes the primary.
    Failover,
    /// The store restarts without data.
    Restart,
    /// An instance detects that the store has changed.
    Notice(usize),
    /// An instance receives the new limit.
    Change(usize),
}

/// Lists all actions that are possible now.
pub(super) fn possible(setting: &Prepared, world: &World, actions: &mut Vec<Action>) {
    actions.push(Action::Tick);
    if world.failovers < setting.failovers {
        actions.extend([Action::Replicate, Action::Failover, Action::Restart]);
    }
    let has_room = world.in_flight() < setting.in_flight;
    for (index, instance) in world.instances.iter().enumerate() {
        let is_quiet = has_room && instance.call.is_none() && instance.answer.is_none();
        // Operates on a clone of the pool, so this changes nothing.
        let has_permit = spent(setting, &mut instance.pool.clone(), world, index);
        if has_permit {
            actions.push(Action::Spend(index));
        }
        if is_quiet {
            // Also with permits: a request of another kind may arrive that must call the store.
            actions.push(Action::Call(index));
        }
        if is_quiet && instance.pool.clone().request(setting.held) > 0 {
            actions.extend([Action::CallForMore(index), Action::Prefetch(index)]);
        }
        if let Some(call) = instance.call {
            actions.extend([Action::Deliver(index), Action::LoseCall(index)]);
            if !call.is_repeated {
                actions.push(Action::Repeat(index));
            }
        }
        if instance.answer.is_some() {
            actions.extend([Action::Receive(index), Action::LoseAnswer(index)]);
        }
        if !instance.pool.grants().is_empty() {
            actions.push(Action::Crash(index));
            if has_room {
                actions.extend([Action::Expire(index), Action::Stop(index)]);
            }
        }
        let backs = 0..instance.backs.len();
        actions
            .extend(backs.flat_map(|back| [Action::PermitReturn(index, back), Action::LoseReturn(index, back)]));
        if instance.generation != world.generation() {
            actions.push(Action::Notice(index));
        }
        if setting.changes_to.is_some() && !instance.is_changed {
            actions.push(Action::Change(index));
        }
    }
}

/// Whether the pool provided a permit.
fn spent(setting: &Prepared, pool: &mut PermitPool<bool>, world: &World, index: usize) -> bool {
    let now = match setting.flaw {
        Some(Flaw::SpendsAfterTheEnd) => moment(world.tick.saturating_sub(setting.ttl)),
        _ => world.now(),
    };
    pool.spend(now, world.instances[index].generation, |_| ()).is_some()
}

impl World {
    pub(super) fn act(&mut self, setting: &Prepared, action: Action) -> Result<(), String> {
        match action {
            Action::Tick => self.tick(setting),
            Action::Spend(index) => {
                let mut pool = std::mem::take(&mut self.instances[index].pool);
                let is_spent = spent(setting, &mut pool, self, index);
                self.instances[index].pool = pool;
                return if is_spent { self.pass(setting, 1) } else { Err("no permit".to_owned()) };
            }
            Action::Call(index) => self.call(index, 1, 0),
            Action::CallForMore(index) => self.call(index, 1, setting.held),
            Action::Prefetch(index) => self.call(index, 0, setting.held),
            Action::Deliver(index) => return self.deliver(setting, index),
            Action::Repeat(index) => return self.repeat(setting, index),
            Action::LoseCall(index) => {
                self.instances[index].call = None;
                self.instances[index].pool.call_failed();
            }
            Action::Receive(index) => self.receive(setting, index),
            Action::LoseAnswer(index) => {
                self.instances[index].answer = None;
                self.instances[index].pool.call_failed();
            }
            Action::Expire(index) => return self.take_out(setting, index, false),
            Action::Stop(index) => return self.take_out(setting, index, true),
            Action::Crash(index) => {
                let instance = &mut self.instances[index];
                (instance.pool, instance.call, instance.answer) = (PermitPool::default(), None, None);
            }
            Action::PermitReturn(index, back) => self.come_back(setting, index, back),
            Action::LoseReturn(index, back) => drop(self.instances[index].backs.remove(back)),
            Action::Replicate => self.replica = self.store.clone(),
            Action::Failover => self.lose_memory(self.replica.clone()),
            Action::Restart => self.lose_memory(None),
            Action::Notice(index) => self.instances[index].generation = self.generation(),
            Action::Change(index) => {
                // The permits belong to a decision that no request uses any more. The model returns them at once, which
                // is the worst case.
                self.take_out(setting, index, true)?;
                let instance = &mut self.instances[index];
                (instance.pool, instance.call, instance.answer) = (PermitPool::default(), None, None);
                instance.is_changed = true;
            }
        }
        Ok(())
    }

    fn tick(&mut self, setting: &Prepared) {
        self.tick += 1;
        let (amount, _) = setting.refill;
        self.level = self.level.saturating_sub(amount);
        let tick = self.tick;
        for instance in &mut self.instances {
            if instance.call.is_some_and(|call| tick - call.sent > setting.deadline) {
                instance.call = None;
                instance.pool.call_failed();
            }
            // The permits of this reply would have expired on arrival.
            if instance.answer.is_some_and(|answer| tick - answer.sent > setting.ttl + 1) {
                instance.answer = None;
                instance.pool.call_failed();
            }
            instance.drop_useless(setting, tick);
        }
    }

    fn call(&mut self, index: usize, callers: u32, size: u32) {
        let instance = &mut self.instances[index];
        let asked = instance.pool.request(size);
        instance.call = Some(Call { sent: self.tick, callers, asked, is_repeated: false });
    }

    /// Charges requests one by one while the bucket has tokens, and returns the number charged.
    fn charge(&mut self, quota: &Quota, requests: u32) -> u32 {
        let mut admitted = 0;
        while admitted < requests {
            let (state, verdict) = quota.decide(self.store.take(), Cost::ONE, self.store_now());
            self.store = state;
            if !verdict.outcome.is_allowed() {
                break;
            }
            admitted += 1;
        }
        admitted
    }

    fn deliver(&mut self, setting: &Prepared, index: usize) -> Result<(), String> {
        let Some(call) = self.instances[index].call.take() else { return Err("no call".to_owned()) };
        let quota = setting.quota(self.instances[index].is_changed);
        let admitted = self.charge(quota, call.callers + call.asked);
        let passed = admitted.min(call.callers);
        let (charged, left_over, generation) = (self.tick, admitted - passed, self.generation());
        self.instances[index].answer = Some(Answer { sent: call.sent, charged, left_over, generation });
        self.pass(setting, passed)
    }

    /// The call is executed, but its reply is lost. The caller has not passed yet: it receives the reply of the second
    /// execution.
    fn repeat(&mut self, setting: &Prepared, index: usize) -> Result<(), String> {
        let quota = setting.quota(self.instances[index].is_changed);
        let Some(call) = &mut self.instances[index].call else { return Err("no call".to_owned()) };
        call.is_repeated = true;
        let requests = call.callers + call.asked;
        self.charge(quota, requests);
        Ok(())
    }

    fn receive(&mut self, setting: &Prepared, index: usize) {
        let now = self.tick;
        let instance = &mut self.instances[index];
        let Some(Answer { sent, charged, left_over, generation }) = instance.answer.take() else { return };
        let start = if setting.flaw == Some(Flaw::CountsFromTheAnswer) { now } else { sent };
        instance.pool.grant(Grant {
            permits: left_over,
            charged_at: timestamp(charged),
            ends: moment(start).plus(setting.lifetime()),
            generation,
            state: instance.is_changed,
        });
    }

    /// Removes permits from a pool to return them: the expired ones, or all.
    fn take_out(&mut self, setting: &Prepared, index: usize, is_all: bool) -> Result<(), String> {
        let now = self.now();
        let arrivals = if setting.flaw == Some(Flaw::GivesBackTwice) { 2 } else { 1 };
        let instance = &mut self.instances[index];
        let (held, tally) = (instance.pool.held(), instance.pool.tally());
        let returns = match is_all {
            true => instance.pool.drain(instance.generation),
            false => instance.pool.expire(now, instance.generation),
        };
        let out: u32 = returns.iter().map(|back| back.permits).sum();
        let lost = instance.pool.tally().lost - tally.lost;
        if u64::from(held) != u64::from(instance.pool.held() + out) + lost {
            return Err("permits were given back and kept".to_owned());
        }
        instance.give_back(returns, arrivals);
        instance.drop_useless(setting, self.tick);
        Ok(())
    }

    /// Does the same as the script: the bucket's full time moves earlier by the refill time of the permits, less the
    /// time since their charge.
    fn come_back(&mut self, setting: &Prepared, index: usize, back: usize) {
        let Back { permits, charged, is_changed, arrivals } = self.instances[index].backs[back];
        match arrivals {
            1 => drop(self.instances[index].backs.remove(back)),
            _ => self.instances[index].backs[back].arrivals -= 1,
        }
        let quota = setting.quota(is_changed);
        if setting.flaw == Some(Flaw::RefundsInstead) {
            self.store = quota.refund(self.store.take(), Cost::new(permits), self.store_now());
        } else if let (Quota::TokenBucket(bucket), Some(State::TokenBucket(state))) = (quota, &mut self.store) {
            let lasting = u64::from(permits) * bucket.parts_per_token() / bucket.parts_per_micro();
            undo(state, lasting, timestamp(charged), timestamp(self.tick));
        }
    }

    fn lose_memory(&mut self, remembered: Option<State>) {
        self.store = remembered;
        self.failovers += 1;
    }
}

fn undo(state: &mut TokenBucketState, lasting_micros: u64, charged_at: Timestamp, now: Timestamp) {
    let rest = lasting_micros.saturating_sub(now.since(charged_at).as_micros());
    if state.tat_micros > now.as_micros() {
        state.tat_micros = (state.tat_micros - rest).max(now.as_micros());
        state.kept_until_micros = state.tat_micros;
    }
}
