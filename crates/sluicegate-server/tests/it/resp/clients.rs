//! Real clients: redis-cli, redis-py and the Rust client, and the first commands of clients in other languages.

use std::path::PathBuf;
use std::process::{Command, Output};

use redis::{Connection, FromRedisValue, RedisResult, Value};

use super::{Client, start};

use crate::server::{ConfigFile, Server};

/// Runs an installed program and returns its output.
#[track_caller]
fn run(command: &mut Command, remedy: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {remedy}"));
    let Output { status, stdout, stderr } = &output;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{command:?}: {status}: {}{}", text(stdout), text(stderr));
    text(stdout)
}

fn redis_cli(server: &Server, arguments: &[&str]) -> String {
    let port = server.address("resp").port().to_string();
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port, "--no-raw"]).args(arguments).env_remove("REDISCLI_AUTH");
    run(&mut command, "install Debian's redis-tools")
}

#[test]
fn redis_cli_shows_the_documented_output_of_redis_cell() {
    let server = start(&[]);
    let five = |numbers: [i64; 5]| {
        let line = |(index, number): (usize, &i64)| format!("{}) (integer) {number}\n", index + 1);
        numbers.iter().enumerate().map(line).collect::<String>()
    };
    for protocol in ["-2", "-3"] {
        let throttle = [protocol, "CL.THROTTLE", "user123", "15", "30", "60"];
        assert_eq!(redis_cli(&server, &throttle), five([0, 16, 15, -1, 2]), "{protocol}");
        assert_eq!(redis_cli(&server, &[protocol, "DEL", "user123"]), "(integer) 1\n");
        assert_eq!(redis_cli(&server, &[protocol, "PING"]), "PONG\n");
        let info = redis_cli(&server, &[protocol, "INFO"]);
        assert!(info.contains("redis_version:"), "{info}");
        let check = redis_cli(&server, &[protocol, "SG.CHECK", "demo", "alice", "COST", "11"]);
        assert!(check.contains("6) \"demo\""), "{check}");
        assert_eq!(redis_cli(&server, &[protocol, "GET", "k"]), "(error) ERR unknown command 'GET'\n");
    }
}

#[test]
fn redis_cli_pipes_ten_thousand_commands() {
    let server = start(&[]);
    let file = ConfigFile::new("resp-pipe", "CL.THROTTLE pipe 99999 1 1\r\n".repeat(10_000));
    let port = server.address("resp").port();
    let pipe = format!("redis-cli -h 127.0.0.1 -p {port} --pipe < {}", file.path());
    let printed = run(Command::new("sh").args(["-c", &pipe]), "install Debian's redis-tools");
    assert!(printed.contains("errors: 0, replies: 10000"), "{printed}");
}

/// The program that `cargo xtask test` has installed. It runs beside the binary under test.
fn python() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_BIN_EXE_sluicegate"));
    let target = target.ancestors().nth(2).expect("target/debug/sluicegate");
    target.join("tools/redis-py/bin/python")
}

const SCRIPT: &str = r#"
import sys, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, password=sys.argv[2], client_name="me", socket_timeout=30)
    assert client.ping() is True
    assert client.client_getname() == "me" or client.client_getname() == b"me"
    assert client.client_info()["lib-name"].startswith("redis-py"), client.client_info()
    assert client.info()["redis_version"], client.info()
    key = b"py\xff%d" % protocol
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60, 17) == [1, 16, 15, -1, 2]
    assert client.delete(key, "other") == 1
    pipeline = client.pipeline(transaction=False)
    for _ in range(5000):
        pipeline.execute_command("CL.THROTTLE", key, 4999, 1, 3600)
    answers = pipeline.execute()
    assert [answer[2] for answer in answers] == list(range(4999, -1, -1))
    assert client.execute_command("SG.CHECK", "r", "alice") == [1, None, None, 0, None, None]
    assert client.echo("a b") == b"a b"
    try:
        client.get("k")
        raise SystemExit("GET is not there")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
try:
    redis.Redis(port=port, password="wrong").ping()
    raise SystemExit("a wrong password passes")
except redis.AuthenticationError:
    pass
try:
    redis.Redis(port=port).ping()
    raise SystemExit("no password passes")
except redis.AuthenticationError:
    pass
print("fine")
"#;

#[test]
fn redis_py_connects_authenticates_and_pipelines() {
    let file = ConfigFile::new("resp-py", "resp: { password: s3cret }\nrules: []");
    let server = start(&["--config", file.path()]);
    let port = server.address("resp").port().to_string();
    let mut command = Command::new(python());
    command.args(["-c", SCRIPT, &port, "s3cret"]);
    assert_eq!(run(&mut command, "run `cargo xtask test --only clients`"), "fine\n");
}

fn throttle<T: FromRedisValue>(connection: &mut Connection, key: &[u8], quantity: i64) -> RedisResult<T> {
    redis::cmd("CL.THROTTLE").arg(key).arg(2).arg(1).arg(3_600).arg(quantity).query(connection)
}

#[test]
fn the_rust_client_works_with_both_versions() {
    let file = ConfigFile::new("resp-rust", "resp: { password: s3cret }\nrules: []");
    let server = start(&["--config", file.path()]);
    let address = server.address("resp");
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://default:s3cret@{address}/0?protocol={protocol}");
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        let key = [b"rust\xff", protocol.as_bytes()].concat();
        assert_eq!(throttle(&mut connection, &key, 1), Ok([0, 3, 2, -1, 3_600]));
        assert_eq!(throttle(&mut connection, &key, 3), Ok([1, 3, 2, 3_600, 3_600]));
        assert_eq!(throttle(&mut connection, &key, 4), Ok([1, 3, 2, -1, 3_600]));

        let mut pipeline = redis::pipe();
        for _ in 0..3 {
            pipeline.cmd("CL.THROTTLE").arg(&key).arg(2).arg(1).arg(3_600);
        }
        let answers: Vec<[i64; 5]> = pipeline.query(&mut connection).expect("three answers");
        assert_eq!(answers.iter().map(|answer| answer[0]).collect::<Vec<_>>(), [0, 0, 1]);

        let checked: Value =
            redis::cmd("SG.CHECK").arg("r").arg("alice").query(&mut connection).expect("an answer");
        let nil = || Value::Nil;
        assert_eq!(checked, Value::Array(vec![Value::Int(1), nil(), nil(), Value::Int(0), nil(), nil()]));
        let error = throttle::<Value>(&mut connection, &key, -1).expect_err("a negative quantity");
        assert_eq!(error.code(), Some("ERR"), "{error}");
    }
    let wrong = redis::Client::open(format!("redis://:wrong@{address}")).expect("a URL");
    assert!(wrong.get_connection().is_err());
}

/// The first commands that clients were observed to send, and the number of them that the server may reject. Clients
/// try commands that a server may not know (`MAINT_NOTIFICATIONS`), and continue without them.
const OPENINGS: &[(&str, &[&str], usize)] = &[
    (
        "go-redis 9.23, RESP3",
        &[
            "hello 3 auth default s3cret setname me",
            "client setname me",
            "client maint_notifications on moving-endpoint-type internal-ip",
            "client setinfo LIB-NAME go-redis(,go1.26.8)",
            "client setinfo LIB-VER 9.23.0",
            "ping",
        ],
        1,
    ),
    (
        "go-redis 9.23, RESP2",
        &["hello 2 auth default s3cret setname me", "client setname me", "client setinfo LIB-VER 9.23.0", "ping"],
        0,
    ),
    (
        "ioredis 6.0",
        &[
            "hello 3 AUTH default s3cret",
            "client setname me",
            "client SETINFO LIB-VER 6.0.0",
            "client SETINFO LIB-NAME ioredis",
            "info",
        ],
        0,
    ),
    (
        "node-redis 6.3, RESP2",
        &[
            "AUTH default s3cret",
            "CLIENT SETNAME me",
            "CLIENT SETINFO LIB-VER 6.3.1",
            "CLIENT SETINFO LIB-NAME node-redis",
        ],
        0,
    ),
    (
        "node-redis 6.3, RESP3",
        &[
            "HELLO 3 AUTH default s3cret SETNAME me",
            "CLIENT SETINFO LIB-NAME node-redis",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip",
        ],
        1,
    ),
    (
        "Jedis 6.0",
        &[
            "AUTH s3cret",
            "HELLO 3",
            "CLIENT SETNAME me",
            "CLIENT SETINFO LIB-NAME jedis",
            "CLIENT SETINFO LIB-VER 6.0.0",
        ],
        0,
    ),
    (
        "Lettuce 6.5",
        &[
            "HELLO 3 AUTH default s3cret SETNAME me",
            "CLIENT SETINFO lib-name Lettuce",
            "CLIENT SETINFO lib-ver 6.5.5.RELEASE/cb02888",
        ],
        0,
    ),
];

#[test]
fn clients_of_other_languages_are_let_begin_as_they_do() {
    let file = ConfigFile::new("resp-openings", "resp: { password: s3cret }\nrules: []");
    let server = start(&["--config", file.path()]);
    for (name, opening, refused) in OPENINGS {
        let mut client = Client::connect(&server);
        let packed = |line: &str| {
            let mut words = line.split(' ');
            let mut command = redis::cmd(words.next().unwrap_or_default());
            words.for_each(|word| _ = command.arg(word));
            command.get_packed_command()
        };
        let all: Vec<u8> = opening.iter().chain(&["ECHO over"]).flat_map(|line| packed(line)).collect();
        client.send(all);
        let answers = client.read_until("$4\r\nover\r\n");
        let errors = answers.split("\r\n").filter(|line| line.starts_with('-')).count();
        assert_eq!(errors, *refused, "{name}: {answers}");
        client.send(packed("CL.THROTTLE key 15 30 60"));
        assert!(client.read_until(":-1\r\n:2\r\n").contains(":16\r\n"), "{name}");
        client.send(packed("DEL key"));
        client.expect(":1\r\n");
    }
}
