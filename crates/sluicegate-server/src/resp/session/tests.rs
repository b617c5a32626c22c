//! Replies, command by command.

use super::super::parse::Parser;
use super::*;
use crate::testing;

struct Client(Session);

impl Client {
    fn new(password: Option<&str>) -> Self {
        let engine = testing::engine(vec![testing::hourly("api", 2)]);
        let service = Service::new(engine, testing::resp(password));
        Self(Session::new(service, SocketAddr::from(([192, 0, 2, 7], 40_000))))
    }

    /// The reply to a line, with `|` for each line end, and the state of the connection.
    async fn ask(&mut self, line: &str) -> (String, Flow) {
        let line = format!("{line}\r\n");
        let (words, _) = Parser::default().next(line.as_bytes()).expect("a line").expect("all of it");
        let now = self.0.now();
        let flow = self.0.execute(&words, now).await;
        let answer = String::from_utf8(self.0.replies().as_bytes().to_vec()).expect("text");
        self.0.replies().clear(1_024);
        (answer.replace("\r\n", "|"), flow)
    }

    /// The reply to a line after which the connection stays open.
    async fn answer(&mut self, line: &str) -> String {
        let (answer, flow) = self.ask(line).await;
        assert_eq!(flow, Flow::Continue, "{line}");
        answer
    }

    async fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            assert_eq!(self.answer(line).await, *expected, "{line}");
        }
    }
}

#[tokio::test]
async fn the_small_commands() {
    let mut client = Client::new(None);
    client
        .check(&[
            ("PING", "+PONG|"),
            ("ping hello", "$5|hello|"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command|"),
            ("ECHO 'a b'", "$3|a b|"),
            ("ECHO", "-ERR wrong number of arguments for 'echo' command|"),
            ("SELECT 0", "+OK|"),
            ("SELECT 1", "-ERR DB index is out of range; there is only 0|"),
            ("SELECT x", "-ERR value is not an integer or out of range|"),
            ("GET key", "-ERR unknown command 'GET'|"),
            ("\"a\\r\\nb\" c", "-ERR unknown command 'a\\r\\nb'|"),
            ("", ""),
        ])
        .await;
    assert_eq!(client.ask("QUIT").await, ("+OK|".to_owned(), Flow::Close));
    for line in ["POST / HTTP/1.1", "Host: localhost"] {
        assert_eq!(client.ask(line).await, (String::new(), Flow::Close));
    }
}

#[tokio::test]
async fn both_limiters_answer_and_del_deletes() {
    let mut client = Client::new(None);
    client
        .check(&[
            ("CL.THROTTLE k 1 1 3600", "*5|:0|:2|:1|:-1|:3600|"),
            ("DEL k k other", ":1|"),
            ("CL.THROTTLE k 1 1 3600 2", "*5|:0|:2|:0|:-1|:7200|"),
            ("CL.THROTTLE k 1 1", "-ERR wrong number of arguments for 'cl.throttle' command|"),
            ("CL.THROTTLE k 1 1 1 1 1", "-ERR wrong number of arguments for 'cl.throttle' command|"),
            ("SG.CHECK r alice", "*6|:1|:2|:1|:0|:3600000|$3|api|"),
            ("SG.CHECK r alice TIER nope", "-ERR `tier` is \"nope\": use one of pro|"),
            ("SG.CHECK r ''", "-ERR `identifier` is empty: give it at least one character|"),
            ("SG.CHECK r", "-ERR wrong number of arguments for 'sg.check' command|"),
        ])
        .await;
}

#[tokio::test]
async fn hello_chooses_the_version() {
    let mut client = Client::new(None);
    let start = "$6|server|$10|sluicegate|$7|version|$5|7.2.0|$5|proto|";
    let end = "$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|";
    assert_eq!(client.answer("HELLO").await, format!("*14|{start}:2|{end}"));
    assert_eq!(client.answer("HELLO 3 SETNAME me").await, format!("%7|{start}:3|{end}"));
    client
        .check(&[
            ("CLIENT GETNAME", "$2|me|"),
            ("HELLO 4", "-NOPROTO unsupported protocol version|"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range|"),
            ("HELLO 2 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'|"),
            ("HELLO 2 FOO bar", "-ERR Syntax error in HELLO option 'FOO'|"),
            ("HELLO 2 SETNAME 'a b'", &format!("-{}|", handshake::BAD_NAME)),
            // None of these has changed the state.
            ("SG.CHECK r a COST 3", "*6|:0|:2|:2|:-1|:0|$3|api|"),
            ("CLIENT SETNAME ''", "+OK|"),
            ("CLIENT GETNAME", "_|"),
        ])
        .await;
    assert_eq!(client.answer("HELLO 2").await, format!("*14|{start}:2|{end}"));
    client.check(&[("CLIENT GETNAME", "$-1|")]).await;
}

#[tokio::test]
async fn commands_need_the_password() {
    let mut client = Client::new(Some("s3cret"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    let none = "-NOAUTH Authentication required.|";
    client
        .check(&[
            ("PING", none),
            ("CL.THROTTLE k 1 1 1", none),
            ("GET k", none),
            ("AUTH wrong", wrong),
            ("AUTH admin s3cret", wrong),
            ("AUTH a b c", "-ERR syntax error; use AUTH [user] password|"),
            ("HELLO 3 AUTH default wrong", wrong),
            ("PING", none),
            ("AUTH s3cret", "+OK|"),
            ("PING", "+PONG|"),
            ("RESET", "+RESET|"),
            ("PING", none),
            ("AUTH default s3cret", "+OK|"),
            ("PING", "+PONG|"),
        ])
        .await;

    let mut client = Client::new(Some("s3cret"));
    assert!(client.answer("HELLO 3").await.starts_with("-NOAUTH HELLO must be called with the client already"));
    assert!(client.answer("HELLO 3 AUTH default s3cret SETNAME me").await.starts_with("%7|"));
    client.check(&[("CLIENT GETNAME", "$2|me|")]).await;
}

#[tokio::test]
async fn a_client_that_guesses_passwords_is_cut_off() {
    let mut client = Client::new(Some("s3cret"));
    for _ in 1..WRONG_PASSWORDS_MAX {
        assert!(client.answer("AUTH guess").await.starts_with("-WRONGPASS"));
    }
    let (answer, flow) = client.ask("HELLO 2 AUTH default guess").await;
    assert!(answer.starts_with("-WRONGPASS") && flow == Flow::Close, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_beyond_the_limit_is_answered_late_and_a_right_one_at_once() {
    let mut client = Client::new(Some("s3cret"));
    let started = tokio::time::Instant::now();
    for _ in 0..10 {
        // A right password makes the count of the connection begin anew, and not that of the network.
        assert!(client.answer("AUTH guess").await.starts_with("-WRONGPASS"));
        assert_eq!(client.answer("AUTH s3cret").await, "+OK|");
    }
    assert_eq!(started.elapsed(), std::time::Duration::ZERO);
    let (answer, flow) = client.ask("AUTH guess").await;
    assert!(answer.starts_with("-WRONGPASS") && flow == Flow::Close, "{answer}");
    assert!(started.elapsed() >= std::time::Duration::from_secs(1));
    let (delayed, started) = (started.elapsed(), started);
    assert_eq!(client.answer("AUTH s3cret").await, "+OK|");
    assert_eq!(started.elapsed(), delayed);
}

#[tokio::test]
async fn a_password_where_none_is_expected_is_an_error() {
    let mut client = Client::new(None);
    for line in ["AUTH x", "AUTH default x", "HELLO 3 AUTH default x"] {
        let answer = client.answer(line).await;
        assert!(answer.starts_with("-ERR AUTH <password> called without any password configured"), "{answer}");
    }
    client.check(&[("CLIENT GETNAME", "$-1|")]).await;
}

#[tokio::test]
async fn client_names_are_stored() {
    let mut client = Client::new(None);
    client
        .check(&[
            ("CLIENT ID", ":1|"),
            ("CLIENT SETNAME me", "+OK|"),
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK|"),
            ("client setinfo lib-ver 8.1.0", "+OK|"),
            ("CLIENT SETINFO lib-name 'a b'", "-ERR lib-name cannot contain spaces, newlines or special characters.|"),
            ("CLIENT SETINFO color red", "-ERR Unrecognized option 'color'|"),
            ("CLIENT NO-EVICT on", "+OK|"),
            ("CLIENT NO-TOUCH maybe", "-ERR wrong number of arguments for 'client|no-touch' command|"),
            ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command|"),
            ("CLIENT", "-ERR wrong number of arguments for 'client' command|"),
            (
                "CLIENT INFO",
                "$91|id=1 addr=192.0.2.7:40000 name=me db=0 user=default lib-name=redis-py lib-ver=8.1.0 resp=2\n|",
            ),
        ])
        .await;
    assert!(client.answer("CLIENT KILL 1").await.starts_with("-ERR unknown subcommand 'KILL'"));
    let long = "n".repeat(257);
    assert!(client.answer(&format!("CLIENT SETNAME {long}")).await.starts_with("-ERR Client names"));
}

#[tokio::test]
async fn the_server_and_its_commands_are_described() {
    let mut client = Client::new(None);
    let info = client.answer("INFO server clients").await;
    for line in ["|redis_version:7.2.0|", "|loading:0|", "|role:master|", "|server_name:sluicegate|"] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    client
        .check(&[
            ("COMMAND COUNT", ":14|"),
            (
                "COMMAND INFO cl.throttle nope",
                "*2|*10|$11|cl.throttle|:-5|*2|+write|+fast|:1|:1|:1|*0|*0|*0|*0|$-1|",
            ),
            ("COMMAND DOCS nope", "*0|"),
            (
                "COMMAND DOCS ECHO",
                "*2|$4|echo|*6|$7|summary|$25|Returns the given string.|$5|since|$5|0.1.0|$5|group|$10|connection|",
            ),
        ])
        .await;
    assert!(client.answer("COMMAND").await.starts_with("*14|*10|$4|auth|"));
    assert!(client.answer("COMMAND LIST").await.starts_with("*14|$4|auth|$11|cl.throttle|"));
    assert!(client.answer("COMMAND DOCS").await.starts_with("*28|$4|auth|*6|"));
    assert!(client.answer("COMMAND GETKEYS x").await.starts_with("-ERR unknown subcommand 'getkeys'"));
}

/// The reason may contain host names, so the client learns only that there is one; the counters record it.
#[test]
fn a_store_that_cannot_answer_is_an_error_without_its_reason() {
    let mut client = Client::new(None);
    let error = StoreError::new(sluicegate::store::ErrorClass::Connection, "canary.internal:6379 refused");
    client.0.store_failed(&error);
    let answer = String::from_utf8(client.0.replies().as_bytes().to_vec()).expect("text");
    assert_eq!(answer, "-ERR Service temporarily unavailable (rate limiter backend error)\r\n");
    assert_eq!(client.0.service.engine.totals().store_failures, 1);
}

#[tokio::test]
async fn throttle_decisions_are_counted_and_peeks_are_not() {
    let mut client = Client::new(None);
    for line in
        ["CL.THROTTLE k 1 1 3600", "CL.THROTTLE k 1 1 3600", "CL.THROTTLE k 1 1 3600", "CL.THROTTLE k 1 1 3600 3"]
    {
        client.answer(line).await;
    }
    for line in ["CL.THROTTLE k 1 1 3600 0", "CL.THROTTLE k 1 1 0", "DEL k"] {
        client.answer(line).await;
    }
    let totals = client.0.service.engine.totals();
    assert_eq!((totals.allowed, totals.denied, totals.undecided), (2, 2, 0));
}

/// The allocations to parse `line`, decide it and write the reply, after warm-up.
fn allocations(client: &mut Client, line: &str) -> u64 {
    let line = format!("{line}\r\n");
    let mut answer_once = || {
        let (words, _) = Parser::default().next(line.as_bytes()).expect("a line").expect("all of it");
        let now = client.0.now();
        let flow = futures_util::FutureExt::now_or_never(client.0.execute(&words, now));
        assert_eq!(flow, Some(Flow::Continue), "the embedded store never waits");
        assert!(!client.0.replies().as_bytes().starts_with(b"-"), "an answer, not an error");
        client.0.replies().clear(1_024);
    };
    (0..3).for_each(|_| answer_once());
    allocation_counter::measure(|| (0..100).for_each(|_| answer_once())).count_total
}

#[test]
fn a_decision_allocates_nothing() {
    let mut client = Client::new(None);
    for line in [
        "CL.THROTTLE user:12345678 1000000 1000000 60",
        "CL.THROTTLE denied 0 1 3600 1",
        "CL.THROTTLE looked-at 10 1 3600 0",
        "SG.CHECK api.read alice TENANT acme",
    ] {
        assert_eq!(allocations(&mut client, line), 0, "{line}");
    }
    // A key that is not text gets a separate name.
    assert!(allocations(&mut client, "CL.THROTTLE \"\\xff\" 10 1 3600") > 0);
}
