//! Keys and the order in which they are asked for. Everything is drawn before the clock starts.

/// The length of every key.
pub(crate) const KEY_BYTES: usize = 24;
/// How many decisions the order covers before it repeats.
const ORDER_LENGTH: usize = 1 << 20;

/// One workload.
pub(crate) struct Workload {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// The keys.
    pub(crate) keys: Keys,
    /// Which key comes when.
    pub(crate) order: Vec<u32>,
}

/// One key; 100,000 keys evenly; a million keys, few of them often.
pub(crate) fn all() -> [Workload; 3] {
    [
        Workload { name: "hot key", keys: keys(1), order: vec![0; ORDER_LENGTH] },
        Workload { name: "100 k uniform", keys: keys(100_000), order: uniform(100_000) },
        Workload { name: "1 M Zipf", keys: keys(1_000_000), order: zipf(1_000_000) },
    ]
}

impl Workload {
    /// The key asked for at `step`.
    pub(crate) fn key(&self, step: usize) -> &str {
        self.keys.get(self.order[step % ORDER_LENGTH] as usize)
    }
}

/// Many keys side by side in one text.
pub(crate) struct Keys {
    text: String,
}

impl Keys {
    /// The key at `index`.
    pub(crate) fn get(&self, index: usize) -> &str {
        &self.text[index * KEY_BYTES..(index + 1) * KEY_BYTES]
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.text.len() / KEY_BYTES
    }

    /// All keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// `count` keys of 24 bytes.
pub(crate) fn keys(count: usize) -> Keys {
    Keys { text: (0..count).map(|index| format!("user:{index:019}")).collect() }
}

fn uniform(count: u32) -> Vec<u32> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    (0..ORDER_LENGTH).map(|_| (random.next() % u64::from(count)) as u32).collect()
}

/// Zipf with exponent 1, by the inverse of the harmonic sum.
fn zipf(count: u32) -> Vec<u32> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let scale = f64::from(count).ln();
    let draw = |_| {
        let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((uniform * scale).exp() as u32 - 1).min(count - 1)
    };
    // Ranks are scattered over the table, as identities are.
    (0..ORDER_LENGTH).map(draw).map(|rank| (u64::from(rank) * 7_919 % u64::from(count)) as u32).collect()
}

/// xorshift: the same sequence in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
