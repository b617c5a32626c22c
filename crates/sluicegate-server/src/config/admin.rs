//! `admin`: who may read and change what on the admin listener, besides whoever has the token of the environment.

use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::file::{Reader, Section, Wrong, value};

use crate::http::admin::access::Role;

/// The keys of `admin`.
pub(crate) const ADMIN_KEYS: &[&str] = &["tokens"];
/// The keys of one token.
pub(crate) const TOKEN_KEYS: &[&str] = &["name", "role", "sha256", "env"];
/// The most tokens: a few people and programs, and each is compared with whatever is sent.
pub(crate) const TOKENS_MAX: usize = 100;
/// What a token may allow, each including those before it.
pub(crate) const ROLES: &[(&str, Role)] =
    &[("read", Role::Read), ("operate", Role::Operate), ("admin", Role::Admin)];

/// A token, by its hash or by where it is.
#[derive(Clone, Debug)]
pub(crate) struct TokenSettings {
    /// Who has it, for the audit.
    pub(crate) name: Box<str>,
    /// What it allows.
    pub(crate) role: Role,
    /// What it is.
    pub(crate) is: TokenIs,
}

/// What a token is.
#[derive(Clone, Debug)]
pub(crate) enum TokenIs {
    /// The one with this hash.
    Hash(KeyHash),
    /// The one in this environment variable.
    Env(String),
}

/// Reads `admin`.
pub(super) fn read(reader: &Reader<'_>) -> Option<Vec<TokenSettings>> {
    let section = reader.section(ADMIN_KEYS)?;
    section.optional("tokens", Vec::new(), |tokens| {
        let items = tokens.list("write a list of tokens, each with `name`, `role` and `sha256` or `env`")?;
        if items.len() > TOKENS_MAX {
            let remedy = format!("use at most {TOKENS_MAX}");
            return tokens.refuse(Wrong::new(format!("{} tokens", items.len()), remedy));
        }
        let mut names: Vec<Box<str>> = Vec::new();
        let read: Vec<Option<TokenSettings>> = items.iter().map(|item| read_token(item, &mut names)).collect();
        read.into_iter().collect()
    })
}

fn read_token(reader: &Reader<'_>, names: &mut Vec<Box<str>>) -> Option<TokenSettings> {
    let section = reader.section(TOKEN_KEYS)?;
    let name = section.required("name", "say whose it is: the audit names it").and_then(|reader| {
        let name = reader.text_as(value::name)?;
        if names.contains(&name) {
            return reader.refuse(Wrong::new("a second one of that name", "rename or remove one of the two"));
        }
        names.push(name.clone());
        Some(name)
    });
    let role = section.required("role", "say what it allows: read, operate or admin");
    let role = role.and_then(|role| role.choice(ROLES));
    let is = read_what(&section);
    Some(TokenSettings { name: name?, role: role?, is: is? })
}

fn read_what(section: &Section<'_>) -> Option<TokenIs> {
    match (section.get("sha256"), section.get("env")) {
        (Some(hash), None) => {
            let remedy = "give the SHA-256 of the token, for example from `printf %s TOKEN | sha256sum`";
            // Whoever writes the token itself by mistake does not want to see it in a log.
            KeyHash::from_hex(&hash.secret()?).map(TokenIs::Hash).or_else(|| {
                hash.report_as(Wrong::new("not 64 hexadecimal digits", remedy), None);
                None
            })
        }
        (None, Some(variable)) => {
            let name = |text: &str| match text {
                "" => Err(Wrong::new("empty", "write the name of an environment variable")),
                text => Ok(text.to_owned()),
            };
            variable.text_as(name).map(TokenIs::Env)
        }
        _ => {
            let remedy = "give either its `sha256`, or the `env` variable that holds it";
            section.reader().refuse(Wrong::new("not one token", remedy))
        }
    }
}
