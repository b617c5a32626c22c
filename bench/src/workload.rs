//! Keys and their order. All random numbers are drawn before the clock starts.

/// Requests before they repeat.
const REQUESTS: usize = 1 << 20;

/// One workload.
pub(crate) struct Workload {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// The keys.
    pub(crate) keys: Vec<String>,
    /// The sequence of requests. Each request has its own text, in a cache-friendly position: a server
    /// has just read it from a connection.
    pub(crate) requests: Vec<String>,
}

/// One key; 100,000 keys uniformly; a million keys, a few of them frequent.
pub(crate) fn all() -> [Workload; 3] {
    [
        workload("hot key", 1, vec![0; REQUESTS]),
        workload("100 k uniform", 100_000, uniform(100_000)),
        workload("1 M Zipf", 1_000_000, zipf(1_000_000)),
    ]
}

fn workload(name: &'static str, count: usize, order: Vec<u32>) -> Workload {
    let keys = keys(count);
    let requests = order.iter().map(|index| keys[*index as usize].clone()).collect();
    Workload { name, keys, requests }
}

impl Workload {
    /// The key of `step`.
    pub(crate) fn key(&self, step: usize) -> &String {
        &self.requests[step % REQUESTS]
    }
}

/// `count` keys of 24 bytes.
pub(crate) fn keys(count: usize) -> Vec<String> {
    (0..count).map(key).collect()
}

/// The key with this number.
pub(crate) fn key(index: usize) -> String {
    format!("user:{index:019}")
}

/// Requests for this many keys, uniformly.
pub(crate) fn spread_over(count: u32) -> Vec<String> {
    uniform(count).into_iter().map(|index| key(index as usize)).collect()
}

fn uniform(count: u32) -> Vec<u32> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    (0..REQUESTS).map(|_| (random.next() % u64::from(count)) as u32).collect()
}

/// Zipf with exponent 1, by the inverse of the harmonic sum.
pub(crate) fn zipf(count: u32) -> Vec<u32> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let scale = f64::from(count).ln();
    let draw = |_| {
        let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((uniform * scale).exp() as u32 - 1).min(count - 1)
    };
    // Ranks are scattered over the table, as identities are in practice.
    (0..REQUESTS).map(draw).map(|rank| (u64::from(rank) * 7_919 % u64::from(count)) as u32).collect()
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
