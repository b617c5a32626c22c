//! Random requests and their clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use fastrand::Rng;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sluicegate::path::{EncodedSlashes, Path};

use crate::client::{Answer, Connection};

/// The secret that signs the tokens, and their issuer and audience.
pub(super) const SECRET: &str = "a secret of the tests, 32 bytes.";
pub(super) const ISSUER: &str = "https://id.test";
pub(super) const AUDIENCE: &str = "api";

/// Keys and their identities: identifier, tier, tenant.
pub(super) const KEYS: [(&str, Known); 4] = [
    ("alices", ("alice", None, None)),
    ("carols", ("carol", Some("pro"), Some("shop"))),
    ("vips", ("vip-7", None, None)),
    // A tier without a rule has no effect.
    ("dans", ("dan", Some("gold"), None)),
];

/// Identifier, tier, tenant.
pub(super) type Known = (&'static str, Option<&'static str>, Option<&'static str>);

/// Many spellings of a few paths, including encoded slashes and invalid paths.
const PATHS: [&str; 27] = [
    "/api/v1/items",
    "//api/v1/items/",
    "/api/./V1/items",
    "/api/x/../v1/%69tems",
    "/API/v1/items;jsessionid=1",
    "/api/v2/items?page=2",
    "/api/v2/items.",
    "/api/export",
    "/api/%65xport/",
    "/api/export/.?x=/never",
    "/api/EXPORT",
    "/api/ping",
    "/api/ping",
    "/api/orders/7",
    "/api/orders/7",
    "/about",
    "/about//",
    "/never",
    "/%2e%2e/never",
    "/",
    "/api%2fexport",
    "/x%2F..%2Fnever",
    "/@scope%2Fname",
    "/about%2Fx/../y",
    "/api/..;/never",
    "/api/%zz",
    "/api/%00",
];

const METHODS: [&str; 9] = ["GET", "GET", "GET", "HEAD", "POST", "POST", "DELETE", "OPTIONS", "PURGE"];

/// Addresses in the header of a trusted proxy. Two of them belong to one client.
const BEHIND: [&str; 5] = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "198.51.100.7, 203.0.113.5"];

/// One request.
#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) credential: Credential,
    pub(super) client: Client,
}

/// The header lines of a credential, and its identity if it is valid.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    lines: String,
    known: Option<Known>,
}

/// The origin of a request.
#[derive(Clone, Debug)]
pub(super) enum Client {
    /// From this address, with this claim in `X-Forwarded-For`.
    Direct(Ipv4Addr, Option<&'static str>),
    /// Through a trusted proxy at 127.0.0.1 that writes this into `X-Forwarded-For`.
    Behind(&'static str),
}

impl TestRequest {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let one = |texts: &[&'static str], rng: &mut Rng| texts[rng.usize(..texts.len())];
        let client = match rng.bool() {
            true => Client::Behind(one(&BEHIND, rng)),
            false => {
                let address = Ipv4Addr::new(127, 0, 0, rng.u8(2..6));
                Client::Direct(address, rng.bool().then(|| one(&BEHIND, rng)))
            }
        };
        let credential = CREDENTIALS[rng.usize(..CREDENTIALS.len())].clone();
        Self { method: one(&METHODS, rng), path: one(&PATHS, rng), credential, client }
    }

    /// Sends the request from the address of its client or proxy.
    pub(super) fn send(&self, address: SocketAddr) -> Answer {
        let (source, forwarded_for) = match self.client {
            Client::Direct(source, claimed) => (source, claimed),
            Client::Behind(told) => (Ipv4Addr::LOCALHOST, Some(told)),
        };
        let forwarded_for = forwarded_for.map(|list| format!("x-forwarded-for: {list}\r\n")).unwrap_or_default();
        self.over(source, address, self.method, self.path, &forwarded_for)
    }

    /// Sends the forward-auth check that a proxy would send for this request.
    pub(super) fn send_about(&self, address: SocketAddr) -> Answer {
        let forwarded_for = match self.client {
            Client::Direct(source, Some(claimed)) => format!("{claimed}, {source}"),
            Client::Direct(source, None) => source.to_string(),
            Client::Behind(told) => told.to_owned(),
        };
        let (method, path) = (self.method, self.path);
        let lines = format!(
            "x-forwarded-method: {method}\r\nx-forwarded-uri: {path}\r\nx-forwarded-for: {forwarded_for}\r\n"
        );
        self.over(Ipv4Addr::LOCALHOST, address, "GET", "/v1/auth", &lines)
    }

    fn over(&self, source: Ipv4Addr, address: SocketAddr, method: &str, path: &str, lines: &str) -> Answer {
        let mut connection = Connection::open_from(source, address);
        let credential = &self.credential.lines;
        connection.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\n{lines}{credential}content-length: 0\r\nconnection: \
             close\r\n\r\n"
        ));
        connection.answer()
    }

    /// The same request as the body of a check, if its client is known by name and its path has only one reading.
    pub(super) fn as_check(&self) -> Option<Value> {
        let (identifier, tier, tenant) = self.credential.known?;
        let path = self.path.split('?').next()?;
        let path = Path::parse(path, EncodedSlashes::Keep).ok().filter(|path| path.separated().is_empty())?;
        let mut body = json!({ "identifier": identifier, "resource": path.resource() });
        if let Some(tier) = tier.filter(|tier| *tier != "gold") {
            body["tier"] = tier.into();
        }
        if let Some(tenant) = tenant {
            body["tenant"] = tenant.into();
        }
        Some(body)
    }
}

/// Valid and invalid credentials, and no credential.
static CREDENTIALS: LazyLock<Vec<Credential>> = LazyLock::new(|| {
    let keys = KEYS.map(|(key, known)| Credential { lines: key_line(key), known: Some(known) });
    let tokens = [("bob", Some("free"), Some("shop")), ("alice", None, None), ("erin", Some("pro"), None)]
        .map(|known| Credential { lines: bearer(&token(known, u32::MAX.into(), SECRET)), known: Some(known) });
    let bob = ("bob", None, None);
    let bad = [
        key_line("nobodys"),
        key_line(""),
        key_line("alices").repeat(2),
        bearer(&token(bob, 7, SECRET)),
        bearer(&token(bob, u32::MAX.into(), "another secret of 32 bytes, yes.")),
        bearer("x"),
        "authorization: Basic YTpi\r\nx-api-key: nobodys\r\n".to_owned(),
    ]
    .map(|lines| Credential { lines, known: None });
    let both = format!("{}{}", bearer(&token(bob, u32::MAX.into(), SECRET)), key_line("carols"));
    let both = Credential { lines: both, known: Some(bob) };
    let none = Credential { lines: String::new(), known: None };
    [&keys[..], &tokens, &bad, &[both, none.clone(), none.clone(), none]].concat()
});

fn key_line(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn token((identifier, tier, tenant): Known, expires: u64, secret: &str) -> String {
    let mut claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": identifier, "exp": expires });
    for (name, value) in [("tier", tier), ("org", tenant)] {
        if let Some(value) = value {
            claims[name] = value.into();
        }
    }
    let key = EncodingKey::from_secret(secret.as_bytes());
    encode(&Header::new(Algorithm::HS256), &claims, &key).expect("a token")
}
