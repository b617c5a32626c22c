//! Plants secrets in every input of the real binary, sends requests of every kind and provokes every failure. Then the
//! test searches all logs, responses and outgoing data for the secrets.
//!
//! A secret may appear only where it belongs: upstreams receive the credentials of clients, the collector receives its
//! token, and Redis its password. No other output may contain a secret in any form: logs at the level `trace`,
//! metrics, responses and pages, the admin API, spans, and the output of the command line.

mod front_doors;
mod programs;
mod secrets;

use std::process::{Command, Stdio};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sluicegate_testkit::otlp_collector::OtlpCollector;
use sluicegate_testkit::redis_server::{Options, Program, RedisServer};
use tempfile::TempDir;

use crate::gateway::upstream::Upstream;
use crate::server::{Server, sluicegate};
use secrets::Canary;

/// All secrets that the server receives from its configuration or from clients.
struct Secrets {
    api_key: Canary,
    wrong_api_key: Canary,
    query: Canary,
    cookie: Canary,
    basic: Canary,
    jwt_secret: Canary,
    /// The signature of a valid token.
    signature: Canary,
    token: String,
    forged: Canary,
    admin_token: Canary,
    ops_token: Canary,
    wrong_admin_token: Canary,
    redis: Canary,
    wrong_redis: Canary,
    database: Canary,
    resp: Canary,
    wrong_resp: Canary,
    otlp: Canary,
    hash_secret: Canary,
    key_secret: Canary,
    body: Canary,
    mistake: Canary,
}

impl Secrets {
    fn new() -> Self {
        let jwt_secret = Canary::new("jwt-secret");
        let token = token(&jwt_secret.text);
        let forged = token_signature("forged", &self::token("another secret, which the server does not know"));
        Self {
            api_key: Canary::new("api-key"),
            wrong_api_key: Canary::new("wrong-api-key"),
            query: Canary::new("query"),
            cookie: Canary::new("cookie"),
            basic: Canary::new("basic"),
            signature: token_signature("signature", &token),
            jwt_secret,
            token,
            forged,
            admin_token: Canary::new("admin-token"),
            ops_token: Canary::new("ops-token"),
            wrong_admin_token: Canary::new("wrong-admin-token"),
            redis: Canary::new("redis"),
            wrong_redis: Canary::new("wrong-redis"),
            database: Canary::new("database"),
            resp: Canary::new("resp"),
            wrong_resp: Canary::new("wrong-resp"),
            otlp: Canary::new("otlp"),
            hash_secret: Canary::new("hash-secret"),
            key_secret: Canary::new("key-secret"),
            body: Canary::new("body"),
            mistake: Canary::new("mistake"),
        }
    }

    fn all(&self) -> [&Canary; 21] {
        [
            &self.api_key,
            &self.wrong_api_key,
            &self.query,
            &self.cookie,
            &self.basic,
            &self.jwt_secret,
            &self.signature,
            &self.forged,
            &self.admin_token,
            &self.ops_token,
            &self.wrong_admin_token,
            &self.redis,
            &self.wrong_redis,
            &self.database,
            &self.resp,
            &self.wrong_resp,
            &self.otlp,
            &self.hash_secret,
            &self.key_secret,
            &self.body,
            &self.mistake,
        ]
    }
}

fn token(secret: &str) -> String {
    let claims = json!({ "iss": "https://id.example", "aud": "api", "sub": "alice", "exp": 4_102_444_800_u64 });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).expect("a token")
}

fn token_signature(name: &'static str, token: &str) -> Canary {
    let signature = token.rsplit('.').next().expect("three parts");
    Canary::of(name, token.to_owned(), signature)
}

/// The number of characters shown before a leak.
const BEFORE_LEAK: usize = 80;

/// All captured outputs, each with its place.
#[derive(Default)]
struct Outputs(Vec<(String, String)>);

impl Outputs {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    /// A description of each leaked secret with its place.
    fn leaks(&self, secrets: &Secrets) -> Vec<String> {
        let mut leaks = Vec::new();
        for (place, text) in &self.0 {
            for canary in secrets.all() {
                let Some((form, before)) = canary.place_in(text) else { continue };
                let start = before.char_indices().rev().nth(BEFORE_LEAK).map_or(0, |(start, _)| start);
                leaks.push(format!("{} ({form}) in {place}, after `{}`", canary.name, &before[start..]));
            }
        }
        leaks
    }

    /// All outputs of places with this text in their name.
    fn at(&self, place: &str) -> String {
        self.0.iter().filter(|(name, _)| name.contains(place)).map(|(_, text)| text.as_str()).collect()
    }
}

/// A server that knows all the secrets, and its peers.
struct Scene {
    secrets: Secrets,
    server: Server,
    redis: RedisServer,
    collector: OtlpCollector,
    upstream: Upstream,
    folder: TempDir,
}

impl Scene {
    fn start() -> Self {
        let (secrets, folder) = (Secrets::new(), tempfile::tempdir().expect("a folder"));
        let user = format!("user on >{} ~* &* +@all", secrets.redis.text);
        let redis = RedisServer::with(&Options::new(Program::Redis).user(&user));
        let (collector, upstream) = (OtlpCollector::start(), Upstream::echo(""));
        let database = folder.path().join("rules.db");
        let config =
            format!("database: sqlite://{}\n{}", database.display(), config(&secrets, &collector, &upstream));
        std::fs::write(folder.path().join("config.yaml"), config).expect("a file");
        let mut command = under_shell(&folder);
        command.args(["--resp", "127.0.0.1:0", "--store", &redis.url_as("user", &secrets.redis.text)]);
        environment(&mut command, &secrets);
        let server = Server::start_command(command);
        Self { secrets, server, redis, collector, upstream, folder }
    }

    fn config_path(&self) -> String {
        self.folder.path().join("config.yaml").to_str().expect("text").to_owned()
    }
}

/// The binary with its standard output in a file. The shell replaces itself by the binary.
fn under_shell(folder: &TempDir) -> Command {
    let inner = sluicegate(&["--gateway", "127.0.0.1:0", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let script = format!("exec \"$0\" \"$@\" > '{}'", folder.path().join("stdout").display());
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    command.args(["--config", folder.path().join("config.yaml").to_str().expect("text")]);
    command
}

fn environment(command: &mut Command, secrets: &Secrets) {
    command
        .env("SLUICEGATE_LOG", "trace")
        .env("SLUICEGATE_LOG_FORMAT", "text")
        .env("SLUICEGATE_ADMIN_TOKEN", &secrets.admin_token.text)
        .env("OPS_TOKEN", &secrets.ops_token.text)
        .env("JWT_SECRET", &secrets.jwt_secret.text)
        .env("RESP_PASSWORD", &secrets.resp.text)
        .env("OTLP_TOKEN", &secrets.otlp.text)
        .env("HASH_SECRET", &secrets.hash_secret.text)
        .env("KEY_SECRET", &secrets.key_secret.text);
}

fn config(secrets: &Secrets, collector: &OtlpCollector, upstream: &Upstream) -> String {
    let digest = Sha256::digest(secrets.api_key.text.as_bytes());
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "
redis: {{ keys: hashed, key_secret: '${{KEY_SECRET}}' }}
resp: {{ password: '${{RESP_PASSWORD}}' }}
admin: {{ tokens: [ {{ name: ops, role: operate, env: OPS_TOKEN }} ] }}
trusted_proxies: [127.0.0.1]
identity:
  - jwt: {{ issuer: https://id.example, audience: api, secret_env: JWT_SECRET }}
  - api_key: {{ keys: [ {{ sha256: {sha256}, identifier: demo }} ] }}
  - ip: {{}}
gateway:
  routes:
    - {{ path: /shop/**, upstream: 'http://{}' }}
    - {{ path: /gone/**, upstream: 'http://127.0.0.1:9' }}
log: {{ decisions: {{ allowed: 100% }}, hash_secret: '${{HASH_SECRET}}' }}
traces: {{ endpoint: '{}', headers: {{ authorization: 'Bearer ${{OTLP_TOKEN}}' }} }}
rules:
  - {{ name: few, match: {{ resource: few }}, deadline: 5s, on_store_failure: closed,
      limits: [ {{ algorithm: token_bucket, capacity: 1, refill: 1/d }} ] }}
  - {{ name: pages, match: {{ path: /shop/** }}, deadline: 5s, limits: [ {{ algorithm: fixed_window, limit: 9, window: 1d }} ] }}
  - {{ name: users, match: {{ descriptor: [ {{ key: user }} ] }}, deadline: 5s, limits: [ {{ algorithm: fixed_window, limit: 1, window: 1d }} ] }}
",
        upstream.address,
        collector.endpoint()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_comes_to_light() {
    let scene = Scene::start();
    let mut outputs = Outputs::default();
    front_doors::send_all(&scene, &mut outputs).await;
    assert_used(&scene, &outputs);
    front_doors::reload_mistakes(&scene, &mut outputs);
    programs::serve_with_wrong_password(&scene, &mut outputs);
    programs::serve_while_the_database_goes(&scene, &mut outputs);
    // Repeats everything while the store is down.
    scene.redis.kill();
    front_doors::send_all(&scene, &mut outputs).await;
    programs::run_all(&scene, &mut outputs);

    let Scene { secrets, server, collector, folder, upstream, .. } = scene;
    let spans = collector.wait_for("spans", |spans| (spans.len() > 20).then(|| format!("{spans:#?}")));
    outputs.add("spans", spans);
    server.signal("TERM");
    let log = server.wait().lines.join("\n");
    // The secrets reached their intended places, so the server really used them.
    assert!(collector.messages().iter().any(|message| message.contains(&secrets.otlp.text)));
    assert!(upstream.heads().iter().any(|head| head.contains(&secrets.cookie.text)));
    for told in ["a request has no valid identity", "the store could not decide", "decisions: decision", "TRACE"] {
        assert!(log.contains(told), "`{told}` is not in the log");
    }
    outputs.add("the log", log);
    outputs.add("standard output", std::fs::read_to_string(folder.path().join("stdout")).expect("a file"));
    outputs.add("the last spans", format!("{:#?}", collector.spans()));

    let leaks = outputs.leaks(&secrets);
    assert!(leaks.is_empty(), "secrets came to light: {leaks:#?}");
}

/// The valid secrets were accepted, and the wrong ones rejected.
#[track_caller]
fn assert_used(scene: &Scene, outputs: &Outputs) {
    for (place, expected) in [
        ("GET /shop/1 with the key", "HTTP/1.1 200"),
        ("GET /shop/1 with the token", "HTTP/1.1 200"),
        ("GET /shop/1 with a wrong key", "HTTP/1.1 401"),
        ("GET /shop/1 with a forged token", "HTTP/1.1 401"),
        ("POST /v1/refund with the token", "HTTP/1.1 200"),
        ("POST /v1/refund with a wrong token", "HTTP/1.1 401"),
        ("RESP", "+OK"),
        ("RESP", "-WRONGPASS"),
        ("POST /admin/v1/reload with the token of ops", "HTTP/1.1 200"),
    ] {
        let text = outputs.at(place);
        assert!(text.contains(expected), "{place}: {text}");
    }
    assert!(scene.redis.script_calls() > 0);
}
