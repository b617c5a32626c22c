//! Descriptions of the server: the greeting, INFO, COMMAND and CLIENT INFO.
//!
//! Clients derive features from the version of Redis. The reported one has every command of the
//! handshake that is supported here; the server's own version is a separate field.

use std::fmt::Write as _;

use sluicegate::core::Timestamp;

use super::{Session, Shown, Words};
use crate::resp::command::{self, COMMANDS};

/// The reported version of Redis.
const REDIS_VERSION: &str = "7.2.0";

impl Session {
    /// The reply to HELLO.
    pub(super) fn greet(&mut self) {
        let version = self.replies.version().number();
        let replies = &mut self.replies;
        replies.map(7);
        for (field, value) in [("server", "sluicegate"), ("version", REDIS_VERSION)] {
            replies.bulk(field);
            replies.bulk(value);
        }
        replies.bulk("proto");
        replies.integer(version);
        replies.bulk("id");
        replies.unsigned(self.id);
        for (field, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(field);
            replies.bulk(value);
        }
        replies.bulk("modules");
        replies.array(0);
    }

    /// The reply to INFO, the same for all sections, because it is short.
    pub(super) fn describe_server(&mut self, now: Timestamp) {
        let uptime = now.since(self.service.started).as_micros() / 1_000_000;
        let sessions = self.service.sessions.load(std::sync::atomic::Ordering::Relaxed);
        self.replies.bulk(format!(
            "# Server\r\nserver_name:sluicegate\r\nsluicegate_version:{}\r\nredis_version:{REDIS_VERSION}\r\n\
             redis_mode:standalone\r\nuptime_in_seconds:{uptime}\r\n\r\n\
             # Persistence\r\nloading:0\r\n\r\n\
             # Stats\r\ntotal_connections_received:{sessions}\r\n\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
             # Cluster\r\ncluster_enabled:0\r\n",
            env!("CARGO_PKG_VERSION"),
        ));
    }

    /// `COMMAND [COUNT | LIST | DOCS [name …] | INFO [name …]]`.
    pub(super) fn describe_commands(&mut self, words: &Words<'_>) {
        let subcommand = words.get(1).map(|word| word.to_ascii_lowercase());
        let names = words.get(2..).unwrap_or_default();
        match (subcommand.as_deref(), names) {
            (None, _) | (Some(b"info"), []) => {
                self.replies.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| command.write_info(&mut self.replies));
            }
            (Some(b"info"), names) => {
                self.replies.array(names.len());
                for name in names {
                    match command::find(name) {
                        Some(command) => command.write_info(&mut self.replies),
                        None => self.replies.null(),
                    }
                }
            }
            (Some(b"docs"), names) => {
                let wanted = |name: &str| names.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
                let chosen: Vec<_> =
                    COMMANDS.iter().filter(|command| names.is_empty() || wanted(command.name)).collect();
                self.replies.map(chosen.len());
                chosen.iter().for_each(|command| command.write_docs(&mut self.replies));
            }
            (Some(b"count"), []) => self.replies.unsigned(COMMANDS.len() as u64),
            (Some(b"list"), []) => {
                self.replies.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| self.replies.bulk(command.name));
            }
            (Some(other), _) => self.replies.error(format_args!(
                "ERR unknown subcommand '{}' or wrong number of arguments; there are COUNT, DOCS, INFO and LIST",
                Shown(other)
            )),
        }
    }

    /// The reply to CLIENT INFO.
    pub(super) fn describe_client(&mut self) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut line = format!("id={} addr={} name={}", self.id, self.peer, text(&self.names.client));
        // Writing to memory cannot fail.
        let _ = write!(
            line,
            " db=0 user=default lib-name={} lib-ver={} resp={}",
            text(&self.names.library),
            text(&self.names.library_version),
            self.replies.version().number(),
        );
        line.push('\n');
        self.replies.bulk(line);
    }
}
