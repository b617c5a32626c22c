//! One server: life cycle, rights and TLS.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, ClientTlsConfig, Connection, TlsCertificates};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::{Certificates, ClientCertificates, Options, Program, RedisServer};

const PATIENCE: Duration = Duration::from_secs(10);

fn connect(url: &str) -> redis::RedisResult<Connection> {
    Client::open(url)?.get_connection_with_timeout(PATIENCE)
}

fn get(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key])
}

fn starts_and_answers(program: Program, name_in_info: &str) {
    let server = RedisServer::with(&Options::new(program));
    let mut connection = connect(&server.url()).unwrap();
    redis::cmd("SET").arg("a").arg("1").exec(&mut connection).unwrap();
    assert_eq!(get(&server, "a").as_deref(), Some("1"));
    assert_eq!(server.info("tcp_port"), Some(server.port().to_string()));
    assert!(server.info(name_in_info).is_some());
    assert!(server.resident_bytes() > 1_000_000);
}

#[test]
fn redis_starts_and_answers_on_its_own_port() {
    starts_and_answers(Program::Redis, "redis_version");
}

#[test]
fn valkey_starts_and_answers_on_its_own_port() {
    starts_and_answers(Program::Valkey, "valkey_version");
}

#[test]
fn a_killed_server_refuses_connections_and_comes_back_empty_on_the_same_port() {
    let server = RedisServer::start();
    let before = (server.process_id(), server.port());
    server.command::<()>(&["SET", "a", "1"]);
    server.kill();
    assert!(TcpStream::connect(server.address()).is_err());
    server.restart();
    assert_ne!(server.process_id(), before.0);
    assert_eq!(server.port(), before.1);
    assert_eq!(get(&server, "a"), None);
    assert!(connect(&server.url()).is_ok());
}

#[test]
fn persistent_data_survives_a_restart_unless_cleared() {
    let server = RedisServer::with(&Options::default().set("appendonly", "yes").set("appendfsync", "always"));
    server.command::<()>(&["SET", "a", "1"]);
    server.restart();
    assert_eq!(get(&server, "a").as_deref(), Some("1"));
    server.restart_empty();
    assert_eq!(get(&server, "a"), None);
}

#[test]
fn a_paused_server_keeps_its_connections_and_answers_when_resumed() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).unwrap();
    server.pause();
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(redis::cmd("PING").query::<String>(&mut connection).unwrap_err().is_timeout());
    let waiting = connect_while_paused(&server);
    server.resume();
    assert_eq!(waiting.join().unwrap(), "PONG");
}

/// The kernel accepts connections for a paused process; the reply arrives when the process resumes.
fn connect_while_paused(server: &RedisServer) -> std::thread::JoinHandle<String> {
    let url = server.url();
    std::thread::spawn(move || redis::cmd("PING").query(&mut connect(&url).unwrap()).unwrap())
}

#[test]
fn a_dropped_server_leaves_neither_process_nor_folder_behind() {
    let server = RedisServer::start();
    server.pause();
    let process = format!("/proc/{}", server.process_id());
    let folder = server.folder().to_owned();
    drop(server);
    assert!(!std::path::Path::new(&process).exists());
    assert!(!folder.exists());
}

#[test]
fn a_server_that_cannot_start_fails_with_its_own_words() {
    let start = || RedisServer::with(&Options::default().set("no-such-setting", "1"));
    let panic = std::panic::catch_unwind(start).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("no-such-setting"), "{message}");
}

#[test]
fn a_taken_port_is_reported() {
    for program in [Program::Redis, Program::Valkey] {
        let server = RedisServer::with(&Options::new(program));
        server.kill();
        let _thief = TcpListener::bind(server.address()).unwrap();
        let restart = std::panic::AssertUnwindSafe(|| server.restart());
        let panic = std::panic::catch_unwind(restart).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("was taken while the server was away"), "{message}");
    }
}

#[test]
fn work_shows_in_the_processor_time() {
    let server = RedisServer::start();
    let before = server.processor_time();
    // The kernel counts in hundredths of a second.
    poll::until_true("a longer processor time", PATIENCE, || {
        server.command::<()>(&["EVAL", "for i = 1, 10000 do redis.sha1hex('') end", "0"]);
        server.processor_time() > before
    });
}

#[test]
fn a_memory_limit_is_a_setting_like_any_other() {
    let server = RedisServer::with(&Options::default().set("maxmemory", "1kb"));
    let error = server.try_command::<()>(&["SET", "a", "1"]).unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error}");
}

#[test]
fn passwords_hold_for_clients_and_can_be_changed_under_way() {
    let server = RedisServer::with(&Options::default().password("first"));
    assert!(connect(&server.url()).is_ok());
    assert!(connect(&format!("redis://{}", server.address())).and_then(ping).is_err());
    server.command::<()>(&["CONFIG", "SET", "requirepass", "second"]);
    assert!(connect(&server.url()).is_err());
    assert_eq!(server.command::<String>(&["PING"]), "PONG");
}

fn ping(mut connection: Connection) -> redis::RedisResult<String> {
    redis::cmd("PING").query(&mut connection)
}

#[test]
fn users_have_the_rights_that_were_written_for_them() {
    let options = Options::default().password("secret").user("reader on >word ~* +@read +@connection");
    let server = RedisServer::with(&options);
    let mut reader = connect(&server.url_as("reader", "word")).unwrap();
    redis::cmd("GET").arg("a").query::<Option<String>>(&mut reader).unwrap();
    let refused = redis::cmd("SET").arg("a").arg("1").exec(&mut reader).unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    assert!(connect(&server.url()).and_then(ping).is_ok());
    assert!(connect(&server.url_as("default", "wrong")).is_err());
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = RedisServer::start();
    let replica = RedisServer::with(&Options::default().replica_of(primary.port()));
    primary.command::<()>(&["SET", "a", "1"]);
    assert_eq!(primary.command::<u32>(&["WAIT", "1", "10000"]), 1);
    assert_eq!(get(&replica, "a").as_deref(), Some("1"));
}

fn read(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn connect_with(
    server: &RedisServer,
    certificates: &Certificates,
    client_tls: Option<ClientTlsConfig>,
) -> redis::RedisResult<String> {
    let trusted = TlsCertificates { client_tls, root_cert: Some(read(&certificates.authority())) };
    let client = Client::build_with_tls(server.url(), trusted)?;
    ping(client.get_connection_with_timeout(PATIENCE)?)
}

fn introduced(certificates: &Certificates) -> Option<ClientTlsConfig> {
    let (client_cert, client_key) = (read(&certificates.client()), read(&certificates.client_key()));
    Some(ClientTlsConfig { client_cert, client_key })
}

#[test]
fn with_tls_only_clients_with_a_certificate_connect() {
    let certificates = Arc::new(Certificates::new());
    let server = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::Required));
    assert_eq!(connect_with(&server, &certificates, introduced(&certificates)).unwrap(), "PONG");
    assert!(connect_with(&server, &certificates, None).is_err());
    assert!(connect(&format!("redis://{}", server.address())).and_then(ping).is_err());

    let open = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::NotAsked));
    assert_eq!(connect_with(&open, &certificates, None).unwrap(), "PONG");
    let stranger = Certificates::new();
    assert!(connect_with(&open, &stranger, None).is_err());
}

#[test]
fn a_certificate_that_ran_out_is_refused() {
    let certificates = Arc::new(Certificates::expired());
    let server = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::NotAsked));
    let error = connect_with(&server, &certificates, None).unwrap_err().to_string();
    assert!(error.contains("xpired"), "{error}");
}

#[test]
fn the_programs_match_their_names() {
    for (program, word) in [(Program::Redis, "Redis"), (Program::Valkey, "Valkey")] {
        let version = Command::new(program.path()).arg("--version").output().unwrap();
        assert!(String::from_utf8_lossy(&version.stdout).starts_with(word));
    }
}
