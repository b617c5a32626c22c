//! The handshake of clients: HELLO, AUTH, CLIENT, RESET.
//!
//! There is one user, `default`, with the configured password. Without a configured password no
//! authentication is needed, and an offered password is an error, because the client is probably at the wrong server.

use super::{Flow, Session, Shown, Version, WRONG_PASSWORDS_MAX, Words};

/// The longest name of a client or of its library.
const NAME_BYTES_MAX: usize = 256;

/// The only user.
const USER: &[u8] = b"default";

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                                HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                                select the RESP protocol version at the same time";

/// The names of a client.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) client: Vec<u8>,
    pub(super) library: Vec<u8>,
    pub(super) library_version: Vec<u8>,
}

/// The arguments of HELLO.
#[derive(Debug, Default)]
struct Hello<'w> {
    version: Option<Version>,
    credentials: Option<(&'w [u8], &'w [u8])>,
    name: Option<&'w [u8]>,
}

impl<'w> Hello<'w> {
    /// Parses the words after HELLO.
    fn read(words: &'w Words<'_>) -> Result<Self, String> {
        let mut hello = Self::default();
        let Some((version, mut rest)) = words[1..].split_first() else {
            return Ok(hello);
        };
        hello.version = Some(match std::str::from_utf8(version).ok().and_then(|text| text.parse::<i64>().ok()) {
            Some(2) => Version::Resp2,
            Some(3) => Version::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
            None => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
        });
        loop {
            rest = match rest {
                [] => return Ok(hello),
                [option, user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    hello.credentials = Some((user, password));
                    rest
                }
                [option, name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    hello.name = Some(name);
                    rest
                }
                [option, ..] => return Err(format!("ERR Syntax error in HELLO option '{}'", Shown(option))),
            };
        }
    }
}

impl Session {
    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`: all of it takes effect, or nothing.
    pub(super) async fn hello(&mut self, words: &Words<'_>) -> Flow {
        let hello = match Hello::read(words) {
            Ok(hello) => hello,
            Err(error) => {
                self.replies.error(error);
                return Flow::Continue;
            }
        };
        if hello.name.is_some_and(|name| !is_name(name)) {
            self.replies.error(BAD_NAME);
            return Flow::Continue;
        }
        if let Some((user, password)) = hello.credentials
            && let Err(flow) = self.let_in(user, password).await
        {
            return flow;
        }
        if !self.is_authenticated {
            self.replies.error(HELLO_NEEDS_AUTH);
            return Flow::Continue;
        }
        if let Some(version) = hello.version {
            self.replies.set_version(version);
        }
        if let Some(name) = hello.name {
            self.names.client = name.to_vec();
        }
        self.greet();
        Flow::Continue
    }

    /// `AUTH [user] password`.
    pub(super) async fn authenticate(&mut self, words: &Words<'_>) -> Flow {
        let outcome = match &words[1..] {
            [password] => self.let_in(USER, password).await,
            [user, password] => self.let_in(user, password).await,
            _ => {
                self.replies.error("ERR syntax error; use AUTH [user] password");
                return Flow::Continue;
            }
        };
        match outcome {
            Ok(()) => {
                self.replies.simple("OK");
                Flow::Continue
            }
            Err(flow) => flow,
        }
    }

    /// Compares the password in constant time. On failure the error reply has been written, after a delay if too many wrong
    /// passwords came from the client's network.
    async fn let_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), Flow> {
        let Some(expected) = &self.service.password else {
            self.replies.error(NO_PASSWORD);
            return Err(Flow::Continue);
        };
        // Both comparisons always run: the time may reveal only the user name.
        let is_password = expected.matches(password);
        if is_password && user == USER {
            self.is_authenticated = true;
            self.wrong_passwords = 0;
            return Ok(());
        }
        self.replies.error(WRONG_PASSWORD);
        self.wrong_passwords += 1;
        let brute_force = self.service.engine.admin_tokens().brute_force();
        let are_too_many = brute_force.record_failure(self.peer.ip());
        if are_too_many {
            // Boxed, because a delay is rare, and the futures of all commands would reserve space for it.
            Box::pin(brute_force.delay()).await;
        }
        let is_guessing = are_too_many || self.wrong_passwords >= WRONG_PASSWORDS_MAX;
        if is_guessing {
            tracing::warn!(peer = %self.peer, "a client sent too many wrong passwords, and was cut off");
        }
        Err(if is_guessing { Flow::Close } else { Flow::Continue })
    }

    /// `CLIENT subcommand …`: the subcommands that clients send on their own.
    pub(super) fn client(&mut self, words: &Words<'_>) {
        let subcommand = words[1].to_ascii_lowercase();
        match (subcommand.as_slice(), &words[2..]) {
            (b"id", []) => self.replies.unsigned(self.id),
            (b"getname", []) if self.names.client.is_empty() => self.replies.null(),
            (b"getname", []) => self.replies.bulk(&self.names.client),
            (b"setname", [name]) if is_name(name) => {
                self.names.client = name.to_vec();
                self.replies.simple("OK");
            }
            (b"setname", [_]) => self.replies.error(BAD_NAME),
            (b"setinfo", [attribute, value]) => self.set_info(attribute, value),
            (b"info", []) => self.describe_client(),
            // Hints about caches and eviction have no effect.
            (b"no-evict" | b"no-touch", [switch]) if is_switch(switch) => self.replies.simple("OK"),
            (b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"no-evict" | b"no-touch", _) => {
                let name = Shown(&subcommand);
                self.replies.error(format_args!("ERR wrong number of arguments for 'client|{name}' command"));
            }
            _ => self.replies.error(format_args!(
                "ERR unknown subcommand '{}'; there are ID, GETNAME, SETNAME, SETINFO, INFO, NO-EVICT and NO-TOUCH",
                Shown(&words[1])
            )),
        }
    }

    fn set_info(&mut self, attribute: &[u8], value: &[u8]) {
        let field = match attribute.to_ascii_lowercase().as_slice() {
            b"lib-name" => &mut self.names.library,
            b"lib-ver" => &mut self.names.library_version,
            _ => return self.replies.error(format_args!("ERR Unrecognized option '{}'", Shown(attribute))),
        };
        if !is_name(value) {
            return self.replies.error(format_args!(
                "ERR {} cannot contain spaces, newlines or special characters.",
                Shown(attribute)
            ));
        }
        *field = value.to_vec();
        self.replies.simple("OK");
    }

    /// `RESET`: returns to the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.names = Names::default();
        self.is_authenticated = self.service.password.is_none();
        self.replies.set_version(Version::Resp2);
        self.replies.simple("RESET");
    }
}

pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters, and have at most 256.";

/// Whether a client name is valid; an empty one clears the name.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic)
}

fn is_switch(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off")
}
