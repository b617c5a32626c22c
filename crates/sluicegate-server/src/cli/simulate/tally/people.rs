//! Who asked, how much of it was denied, and how close each came to its limits.
//!
//! At most [`PEOPLE_MAX`] are known at a time. When there are more, those who were never denied and asked least make room
//! and count as others, so whoever is hit stays known; a report says how many that were.

use std::collections::HashMap;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::Count;
use crate::cli::simulate::judge::Who;
use sluicegate::identity::DEFAULT_TENANT;

/// The most identities that are known at a time: some 40 MB of them.
const PEOPLE_MAX: usize = 200_000;
/// The most rules of which one identity's peak is kept.
const PEAKS_MAX: usize = 16;
/// Up to which share of a limit the first, the second and every further class of peaks goes, in thousandths.
pub(crate) const CLASSES: [u16; 10] = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000];

type Places<K> = HashMap<K, u32, foldhash::fast::FixedState>;

/// All identities.
#[derive(Debug, Default)]
pub(crate) struct People {
    by_address: Places<IpAddr>,
    by_name: Places<Box<str>>,
    known: Vec<Person>,
    free: Vec<u32>,
    others: Others,
    /// Set when nobody can make room.
    is_full: bool,
    /// The text of the name at hand.
    name: String,
}

/// Those that are not known one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// How often somebody became one of them.
    pub(crate) people: u64,
    /// What they asked for while they were known.
    pub(crate) count: Count,
}

/// One identity.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) name: Box<str>,
    pub(crate) count: Count,
    /// The most that was used of each rule's limits, in thousandths.
    peaks: SmallVec<[(u32, u16); 2]>,
    is_address: bool,
}

impl Person {
    /// Takes in how much of a rule's limits is used.
    #[inline]
    pub(crate) fn peak(&mut self, rule: usize, permille: u16) {
        if let Some((_, most)) = self.peaks.iter_mut().find(|(place, _)| *place as usize == rule) {
            *most = permille.max(*most);
        } else if self.peaks.len() < PEAKS_MAX {
            self.peaks.push((rule as u32, permille));
        }
    }
}

impl People {
    /// The identity; nothing if there are too many to know this one.
    #[inline]
    pub(crate) fn of(&mut self, who: Who<'_>) -> Option<&mut Person> {
        let place = match who {
            Who::Address(address) => self.by_address.get(&address),
            Who::Named { tenant: DEFAULT_TENANT, name } => self.by_name.get(name),
            Who::Named { tenant, name } => {
                self.name.clear();
                self.name.extend([tenant, "/", name]);
                self.by_name.get(&*self.name)
            }
        };
        match place.copied() {
            Some(place) => Some(&mut self.known[place as usize]),
            None => self.newcomer(who),
        }
    }

    #[cold]
    fn newcomer(&mut self, who: Who<'_>) -> Option<&mut Person> {
        if self.known.len() - self.free.len() >= PEOPLE_MAX {
            self.make_room();
        }
        if self.is_full {
            return None;
        }
        let (name, is_address): (Box<str>, bool) = match who {
            Who::Address(address) => (address.to_string().into(), true),
            Who::Named { tenant: DEFAULT_TENANT, name } => (name.into(), false),
            Who::Named { .. } => (self.name.as_str().into(), false),
        };
        // Bounded far below 2³².
        let place = self.free.pop().unwrap_or(self.known.len() as u32);
        match who {
            Who::Address(address) => self.by_address.insert(address, place),
            Who::Named { .. } => self.by_name.insert(name.clone(), place),
        };
        let person = Person { name, count: Count::default(), peaks: SmallVec::new(), is_address };
        match self.known.get_mut(place as usize) {
            Some(left) => *left = person,
            None => self.known.push(person),
        }
        self.known.get_mut(place as usize)
    }

    /// Lets the quieter half of those go who were never denied.
    fn make_room(&mut self) {
        let mut quiet: Vec<u64> =
            self.known().filter(|person| person.count.denied == 0).map(|person| person.count.allowed).collect();
        if quiet.len() < PEOPLE_MAX / 8 {
            self.is_full = true;
            return;
        }
        let middle = quiet.len() / 2;
        let (_, median, _) = quiet.select_nth_unstable(middle);
        let (median, mut left) = (*median, middle);
        for (place, person) in self.known.iter_mut().enumerate() {
            let is_quiet = person.count.denied == 0 && person.count.allowed <= median && person.count.total() > 0;
            if is_quiet && left > 0 {
                left -= 1;
                self.others.people += 1;
                self.others.count = self.others.count.and(person.count);
                if person.is_address {
                    person.name.parse().ok().and_then(|address: IpAddr| self.by_address.remove(&address));
                } else {
                    self.by_name.remove(&person.name);
                }
                person.count = Count::default();
                self.free.push(place as u32);
            }
        }
    }

    /// Everybody who is known.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Person> {
        // Who made room asked for nothing.
        self.known.iter().filter(|person| person.count.total() > 0)
    }

    pub(crate) fn others(&self) -> Others {
        self.others
    }

    /// True if some came too late to be known.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Those who were denied most, most of all first; equals in the order of their names.
    pub(crate) fn hardest_hit(&self, count: usize) -> Vec<&Person> {
        let mut hit: Vec<&Person> = self.known().filter(|person| person.count.denied > 0).collect();
        hit.sort_unstable_by(|a, b| b.count.denied.cmp(&a.count.denied).then_with(|| a.name.cmp(&b.name)));
        hit.truncate(count);
        hit
    }

    /// How many were denied anything.
    pub(crate) fn denied(&self) -> usize {
        self.known().filter(|person| person.count.denied > 0).count()
    }

    /// How many used how much of a rule's limits at most, by the classes of [`CLASSES`].
    pub(crate) fn peaks(&self, rule: usize) -> [u64; CLASSES.len()] {
        let mut counts = [0; CLASSES.len()];
        let peaks = self.known().flat_map(|person| &person.peaks);
        for (_, permille) in peaks.filter(|(place, _)| *place as usize == rule) {
            let class = CLASSES.iter().position(|class| permille <= class).unwrap_or(CLASSES.len() - 1);
            counts[class] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Who<'static> {
        Who::Address(IpAddr::V4(number.into()))
    }

    #[test]
    fn whoever_is_hit_stays_known_when_there_are_too_many() {
        let mut people = People::default();
        people.of(address(7)).unwrap().count.add(false);
        for number in 100..100 + 2 * PEOPLE_MAX as u32 {
            people.of(address(number)).unwrap().count.add(true);
        }
        assert!(people.known().count() <= PEOPLE_MAX);
        let known = people.known().map(|person| person.count).fold(Count::default(), Count::and);
        assert_eq!(known.and(people.others().count), Count { allowed: 2 * PEOPLE_MAX as u64, denied: 1 });
        assert_eq!(people.hardest_hit(9).len(), 1);
        people.of(address(7)).unwrap().count.add(false);
        assert_eq!(people.hardest_hit(1)[0].count.denied, 2);
    }

    #[test]
    fn names_and_addresses_are_different_people() {
        let mut people = People::default();
        let tenant = DEFAULT_TENANT;
        people.of(Who::Named { tenant, name: "0.0.0.7" }).unwrap().count.add(true);
        people.of(address(7)).unwrap().count.add(true);
        people.of(Who::Named { tenant: "acme", name: "0.0.0.7" }).unwrap().count.add(true);
        people.of(Who::Named { tenant: "acme", name: "0.0.0.7" }).unwrap().peak(3, 450);
        assert_eq!(
            people.known().map(|person| &*person.name).collect::<Vec<_>>(),
            ["0.0.0.7", "0.0.0.7", "acme/0.0.0.7"]
        );
        assert_eq!(people.peaks(3), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
