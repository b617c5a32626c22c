//! What can happen in the model, and what comes of it.

use super::world::{Answer, Back, Call, World, moment, timestamp};
use super::{Flaw, Prepared};
use sluicegate::core::algorithm::token_bucket::TokenBucketState;
use sluicegate::core::{Cost, Quota, State, Timestamp};
use sluicegate::store::leases::{Grant, Pot};

/// Something that happens; the number is that of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request comes and spends a permit.
    Spend(usize),
    /// A request comes and a call is sent for it.
    Call(usize),
    /// The same, and the call asks for permits as well.
    CallForMore(usize),
    /// A call is sent for permits only.
    Prefetch(usize),
    /// A call arrives at the store.
    Deliver(usize),
    /// A call arrives at the store, its answer is lost, and it is sent again.
    Repeat(usize),
    /// A call is lost, or comes after its deadline.
    LoseCall(usize),
    /// An answer arrives.
    Receive(usize),
    /// An answer is lost, or its instance has given up.
    LoseAnswer(usize),
    /// An instance takes out what has ended, to give it back.
    Expire(usize),
    /// An instance stops and gives back what it has.
    Stop(usize),
    /// An instance crashes and starts anew.
    Crash(usize),
    /// Permits come back to the store.
    Return(usize, usize),
    /// Permits are lost on their way back.
    LoseReturn(usize, usize),
    /// The replica hears of all writes.
    Replicate,
    /// The replica takes over.
    Failover,
    /// The store starts anew and remembers nothing.
    Restart,
    /// An instance hears that the store is another one.
    Notice(usize),
    /// An instance hears of the new limit.
    Change(usize),
}

/// All that can happen now.
pub(super) fn possible(setting: &Prepared, world: &World, actions: &mut Vec<Action>) {
    actions.push(Action::Tick);
    if world.failovers < setting.failovers {
        actions.extend([Action::Replicate, Action::Failover, Action::Restart]);
    }
    let has_room = world.in_flight() < setting.in_flight;
    for (index, instance) in world.instances.iter().enumerate() {
        let is_quiet = has_room && instance.call.is_none() && instance.answer.is_none();
        // Asking the pot changes nothing here: it is a copy.
        let has_permit = spent(setting, &mut instance.pot.clone(), world, index);
        if has_permit {
            actions.push(Action::Spend(index));
        }
        if is_quiet {
            // Also with permits: a request of another kind may come, which has to ask.
            actions.push(Action::Call(index));
        }
        if is_quiet && instance.pot.clone().ask(setting.held) > 0 {
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
        if !instance.pot.grants().is_empty() {
            actions.push(Action::Crash(index));
            if has_room {
                actions.extend([Action::Expire(index), Action::Stop(index)]);
            }
        }
        let backs = 0..instance.backs.len();
        actions.extend(backs.flat_map(|back| [Action::Return(index, back), Action::LoseReturn(index, back)]));
        if instance.generation != world.generation() {
            actions.push(Action::Notice(index));
        }
        if setting.changes_to.is_some() && !instance.is_changed {
            actions.push(Action::Change(index));
        }
    }
}

/// Whether the pot gave a permit.
fn spent(setting: &Prepared, pot: &mut Pot<bool>, world: &World, index: usize) -> bool {
    let now = match setting.flaw {
        Some(Flaw::SpendsAfterTheEnd) => moment(world.tick.saturating_sub(setting.ttl)),
        _ => world.now(),
    };
    pot.spend(now, world.instances[index].generation, |_| ()).is_some()
}

impl World {
    pub(super) fn act(&mut self, setting: &Prepared, action: Action) -> Result<(), String> {
        match action {
            Action::Tick => self.tick(setting),
            Action::Spend(index) => {
                let mut pot = std::mem::take(&mut self.instances[index].pot);
                let is_spent = spent(setting, &mut pot, self, index);
                self.instances[index].pot = pot;
                return if is_spent { self.pass(setting, 1) } else { Err("no permit".to_owned()) };
            }
            Action::Call(index) => self.call(index, 1, 0),
            Action::CallForMore(index) => self.call(index, 1, setting.held),
            Action::Prefetch(index) => self.call(index, 0, setting.held),
            Action::Deliver(index) => return self.deliver(setting, index),
            Action::Repeat(index) => return self.repeat(setting, index),
            Action::LoseCall(index) => {
                self.instances[index].call = None;
                self.instances[index].pot.unanswered();
            }
            Action::Receive(index) => self.receive(setting, index),
            Action::LoseAnswer(index) => {
                self.instances[index].answer = None;
                self.instances[index].pot.unanswered();
            }
            Action::Expire(index) => return self.take_out(setting, index, false),
            Action::Stop(index) => return self.take_out(setting, index, true),
            Action::Crash(index) => {
                let instance = &mut self.instances[index];
                (instance.pot, instance.call, instance.answer) = (Pot::default(), None, None);
            }
            Action::Return(index, back) => self.come_back(setting, index, back),
            Action::LoseReturn(index, back) => drop(self.instances[index].backs.remove(back)),
            Action::Replicate => self.replica = self.store.clone(),
            Action::Failover => self.lose_memory(self.replica.clone()),
            Action::Restart => self.lose_memory(None),
            Action::Notice(index) => self.instances[index].generation = self.generation(),
            Action::Change(index) => {
                // The permits belong to a decision that nobody asks for any more; at worst they go back at once.
                self.take_out(setting, index, true)?;
                let instance = &mut self.instances[index];
                (instance.pot, instance.call, instance.answer) = (Pot::default(), None, None);
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
                instance.pot.unanswered();
            }
            // Whatever it brings is over when it arrives.
            if instance.answer.is_some_and(|answer| tick - answer.sent > setting.ttl + 1) {
                instance.answer = None;
                instance.pot.unanswered();
            }
            instance.drop_useless(setting, tick);
        }
    }

    fn call(&mut self, index: usize, callers: u32, size: u32) {
        let instance = &mut self.instances[index];
        let asked = instance.pot.ask(size);
        instance.call = Some(Call { sent: self.tick, callers, asked, is_repeated: false });
    }

    /// Charges one after the other while there is room, and says how many that were.
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

    /// It runs, and nobody hears of it. Its caller has not passed: it hears of the second time.
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
        instance.pot.grant(Grant {
            permits: left_over,
            charged_at: timestamp(charged),
            ends: moment(start).plus(setting.lifetime()),
            generation,
            state: instance.is_changed,
        });
    }

    /// Takes permits out of a pot to give them back: what has ended, or all.
    fn take_out(&mut self, setting: &Prepared, index: usize, is_all: bool) -> Result<(), String> {
        let now = self.now();
        let arrivals = if setting.flaw == Some(Flaw::GivesBackTwice) { 2 } else { 1 };
        let instance = &mut self.instances[index];
        let (held, tally) = (instance.pot.held(), instance.pot.tally());
        let returns = match is_all {
            true => instance.pot.drain(instance.generation),
            false => instance.pot.expire(now, instance.generation),
        };
        let out: u32 = returns.iter().map(|back| back.permits).sum();
        let lost = instance.pot.tally().lost - tally.lost;
        if u64::from(held) != u64::from(instance.pot.held() + out) + lost {
            return Err("permits were given back and kept".to_owned());
        }
        instance.give_back(returns, arrivals);
        instance.drop_useless(setting, self.tick);
        Ok(())
    }

    /// As the script does it: the bucket is full earlier by what the permits last, less the time since they were charged.
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
