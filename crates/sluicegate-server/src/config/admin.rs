//! `admin`: tokens for the admin API besides that of the environment, each with a role.

use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::file::field::{
    Absent, Boolean, Choice, Constraint, Custom, Field, Form, Mapping, Shape, Text,
};
use sluicegate::rules::file::{Reader, Section, ValueError, value};

use crate::rule_documents::read::SHA256_PATTERN;

/// The section.
pub(super) static ADMIN: Mapping =
    Mapping { doc: "Access to the admin API.", fields: &[&TOKENS, &REQUIRE_TOKEN], constraints: &[] };

static TOKENS: Field<Custom<Vec<TokenSettings>>> = Field {
    key: "tokens",
    doc: "Tokens besides that of `SLUICEGATE_ADMIN_TOKEN`, each with a role.",
    kind: Custom {
        read: read_tokens,
        form: || Form::List {
            noun: "tokens",
            item: Box::new(Form::Mapping(&TOKEN)),
            min: 0,
            max: Some(TOKENS_MAX),
            is_unique: false,
        },
    },
    absent: Absent::Default("[]"),
    examples: &[],
};

static REQUIRE_TOKEN: Field<Boolean> = Field {
    key: "require_token",
    doc: "Whether reading needs a token also on this machine. Set it if a local proxy forwards requests without authentication.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

/// One of the `tokens`.
pub(super) static TOKEN: Mapping = Mapping {
    doc: "A token.",
    fields: &[&NAME, &ROLE, &SHA256, &ENV],
    constraints: &[Constraint::OneOf(&["sha256", "env"])],
};

static NAME: Field<Text<Box<str>>> = Field {
    key: "name",
    doc: "The owner of the token, for the audit log.",
    kind: Text { parse: value::name, form: || Form::Named("name") },
    absent: Absent::Required("name its owner, for the audit log"),
    examples: &["deploy"],
};

static ROLE: Field<Choice<Role>> = Field {
    key: "role",
    doc: "The [operations that it allows](admin-api.md#roles), each role including those before it.",
    kind: Choice(&[("read", Role::Read), ("operate", Role::Operate), ("admin", Role::Admin)]),
    absent: Absent::Required("say what it allows: read, operate or admin"),
    examples: &[],
};

static SHA256: Field<Custom<KeyHash>> = Field {
    key: "sha256",
    doc: "The SHA-256 of the token, from `printf %s TOKEN | sha256sum`.",
    kind: Custom {
        read: read_hash,
        form: || Form::Text(Shape::matching("64 hexadecimal digits", SHA256_PATTERN)),
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static ENV: Field<Text<String>> = Field {
    key: "env",
    doc: "The environment variable that contains the token, instead of `sha256`. It must be set when the server starts.",
    kind: Text {
        parse: |text| match text {
            "" => Err(ValueError::new("empty", "write the name of an environment variable")),
            text => Ok(text.to_owned()),
        },
        form: || Form::Text(Shape { min_length: Some(1), ..Shape::new("name of a variable") }),
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

/// The most tokens: each is compared with the token of every request.
const TOKENS_MAX: usize = 100;

/// The operations that a token allows; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Reads everything.
    Read,
    /// Also changes tenants and overrides.
    Operate,
    /// Changes everything.
    Admin,
}

impl Role {
    /// The word of the configuration file.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// A token of the file: its owner, its role and its secret.
#[derive(Clone, Debug)]
pub(crate) struct TokenSettings {
    /// The owner, for the audit log.
    pub(crate) name: Box<str>,
    /// The operations that it allows.
    pub(crate) role: Role,
    /// The secret, or where to find it.
    pub(crate) is: TokenSecret,
}

/// The secret of a token.
#[derive(Clone, Debug)]
pub(crate) enum TokenSecret {
    /// The token with this SHA-256.
    Hash(KeyHash),
    /// The token in this environment variable.
    Env(String),
}

/// Access to the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdminSettings {
    /// Tokens besides `SLUICEGATE_ADMIN_TOKEN`.
    pub(crate) tokens: Vec<TokenSettings>,
    /// Whether loopback clients need a token to read.
    pub(crate) require_token: bool,
}

/// Reads `admin`.
pub(super) fn read(section: &Section<'_>) -> Option<AdminSettings> {
    let (tokens, require_token) = (section.read(&TOKENS), section.read(&REQUIRE_TOKEN));
    Some(AdminSettings { tokens: tokens?, require_token: require_token? })
}

fn read_tokens(tokens: &Reader<'_>) -> Option<Vec<TokenSettings>> {
    let items = tokens.list("write a list of tokens, each with `name`, `role` and `sha256` or `env`")?;
    if items.len() > TOKENS_MAX {
        let remedy = format!("use at most {TOKENS_MAX}");
        return tokens.refuse(ValueError::new(format!("{} tokens", items.len()), remedy));
    }
    let mut names: Vec<Box<str>> = Vec::new();
    let read: Vec<Option<TokenSettings>> = items.iter().map(|item| read_token(item, &mut names)).collect();
    read.into_iter().collect()
}

fn read_token(reader: &Reader<'_>, names: &mut Vec<Box<str>>) -> Option<TokenSettings> {
    let section = reader.mapping(&TOKEN)?;
    let name = section.read(&NAME).and_then(|name| {
        if names.contains(&name) {
            let wrong = ValueError::new("a second one of that name", "rename or remove one of the two");
            return section.get(NAME.key)?.refuse(wrong);
        }
        names.push(name.clone());
        Some(name)
    });
    let role = section.read(&ROLE);
    let is = read_hash_or_variable(&section);
    Some(TokenSettings { name: name?, role: role?, is: is? })
}

fn read_hash_or_variable(section: &Section<'_>) -> Option<TokenSecret> {
    match (section.get(SHA256.key), section.get(ENV.key)) {
        (Some(_), None) => section.read_optional(&SHA256)?.map(TokenSecret::Hash),
        (None, Some(_)) => section.read_optional(&ENV)?.map(TokenSecret::Env),
        _ => {
            let remedy = "give either its `sha256`, or the `env` variable that holds it";
            section.reader().refuse(ValueError::new("not one token", remedy))
        }
    }
}

fn read_hash(reader: &Reader<'_>) -> Option<KeyHash> {
    // A token written here by mistake must not appear in a log.
    KeyHash::from_hex(&reader.secret()?).or_else(|| {
        let remedy = "give the SHA-256 of the token, for example from `printf %s TOKEN | sha256sum`";
        reader.report_as(ValueError::new("not 64 hexadecimal digits", remedy), None);
        None
    })
}
