//! The charge script, and a variant for tests that decides by the caller's clock.

use crate::store::redis::client::call::Script;
use std::sync::LazyLock;

/// The text of the script. Its files are concatenated and share their local names, so that there are no globals.
/// `lua/charge.lua` documents arguments and reply. The optional argument is text to put before it.
macro_rules! text {
    ($($before:expr)?) => {
        concat!(
            $($before,)?
            include_str!("../lua/charge.lua"),
            include_str!("../lua/batch.lua"),
            include_str!("../lua/common.lua"),
            include_str!("../lua/recent_charges.lua"),
            include_str!("../lua/bucket.lua"),
            include_str!("../lua/windows.lua"),
            include_str!("../lua/log.lua"),
            include_str!("../lua/keys.lua"),
            include_str!("../lua/decide.lua"),
        )
    };
}

/// Decides by the server's clock.
pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| Script::new(text!()));

/// Decides by the caller's clock: the same text, preceded by a replacement for `TIME` that reads the time from one
/// more argument.
pub(crate) static CHARGE_AT: LazyLock<Script> =
    LazyLock::new(|| Script::new(text!(include_str!("../lua/caller_clock.lua"))));

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{Connection, RedisResult};
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn server() -> (Server, Connection) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let server = Server(command.stdout(Stdio::null()).spawn().unwrap());
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let connection = (0..1_000).find_map(|_| {
            let connection = client.get_connection().ok();
            if connection.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            connection
        });
        (server, connection.unwrap())
    }

    fn run(connection: &mut Connection, deadline: u64, arguments: &[&str]) -> RedisResult<String> {
        let mut command = redis::cmd("EVAL");
        command.arg(CHARGE.text).arg(1).arg("key").arg(deadline).arg("nonce").arg(arguments);
        command.query(connection)
    }

    const CHARGE_ONE: [&str; 2] = ["charge", "w 1 0 e 600000 60000000"];
    const RESET: [&str; 2] = ["reset", "w 1 0 e 600000 60000000"];

    fn words(reply: &str) -> Vec<&str> {
        reply.split(' ').collect()
    }

    #[test]
    fn a_script_after_its_deadline_changes_nothing() {
        let (_server, mut connection) = server();
        let now: Vec<u64> = redis::cmd("TIME").query(&mut connection).unwrap();
        let past = now[0] * 1_000_000 - 1;
        let late = run(&mut connection, past, &CHARGE_ONE).unwrap();
        assert!(matches!(words(&late)[..], ["nonce", _, "late"]), "{late}");
        assert!(!redis::cmd("EXISTS").arg("key").query::<bool>(&mut connection).unwrap());

        let in_time = run(&mut connection, past + 3_600_000_000, &CHARGE_ONE).unwrap();
        assert!(matches!(words(&in_time)[..], ["nonce", _, "0", "+-"]), "{in_time}");
        let unbounded = run(&mut connection, 0, &CHARGE_ONE).unwrap();
        assert!(words(&unbounded)[3].starts_with("+w"), "{unbounded}");
        let late = run(&mut connection, past, &RESET).unwrap();
        assert!(matches!(words(&late)[..], ["nonce", _, "late"]), "{late}");
        assert!(redis::cmd("EXISTS").arg("key").query::<bool>(&mut connection).unwrap());
    }

    /// Row 39: if clients bring the time, the client whose clock is ahead gets everything and the others starve.
    #[test]
    fn the_script_takes_no_time_from_its_caller() {
        let (_server, mut connection) = server();
        let result = run(&mut connection, 0, &[CHARGE_ONE.as_slice(), &["1705312800123456"]].concat());
        assert!(result.unwrap_err().to_string().contains("unknown operation"));
        assert!(!redis::cmd("EXISTS").arg("key").query::<bool>(&mut connection).unwrap());
    }

    #[test]
    fn unknown_arguments_are_rejected_and_change_nothing() {
        let (_server, mut connection) = server();
        let unknown = [CHARGE_ONE.as_slice(), &["guess", "w 1 0 e 600000 60000000"]].concat();
        assert!(run(&mut connection, 0, &unknown).is_err());
        assert!(run(&mut connection, 0, &["charge", "? 1 0 e"]).is_err());
        assert!(run(&mut connection, 0, &["charge", "z 1 0 e 1 2 3"]).is_err());
        assert!(!redis::cmd("EXISTS").arg("key").query::<bool>(&mut connection).unwrap());
    }
}
