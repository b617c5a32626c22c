//! Admin tokens: their roles, and the checks of the `Authorization` header against them.
//!
//! A client on this machine may read without a token, unless the configuration requires one. A request without a valid
//! token is answered 401. Without a configured token nothing can be changed: 403 with the remedy. A sent credential is
//! compared with every token, by hash and in constant time. Wrong ones are counted: see [`BruteForceGuard`]. No response
//! contains a token.

mod same_origin;

use std::future::Future;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::file::Environment;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::brute_force::{BruteForceGuard, SECRET_BYTES_MIN};
use crate::config::admin::{Role, TokenSecret, TokenSettings};
use crate::problem::Problem;
use crate::secret::Secret;

/// The actor of the environment's token in the audit log.
const ADMINISTRATOR: &str = "admin";

/// All admin tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
    /// Whether clients on this machine also need a token to read.
    is_required: bool,
    brute_force: BruteForceGuard,
}

/// A token with its name and role.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    name: Box<str>,
    role: Role,
    hash: KeyHash,
}

/// The rejection of a request whose token is missing, wrong or insufficient.
#[derive(Debug)]
pub(crate) struct TokenRejection {
    problem: Problem,
    /// Whether the token is wrong and its network has exceeded the limit of failures. The response is then delayed.
    is_delayed: bool,
}

impl From<Problem> for TokenRejection {
    fn from(problem: Problem) -> Self {
        Self { problem, is_delayed: false }
    }
}

impl TokenRejection {
    pub(crate) fn status(&self) -> StatusCode {
        self.problem.status()
    }
}

/// An unusable token of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("admin.tokens: the environment variable {variable} is not set; put the token of {name} into it")]
    Missing { variable: String, name: Box<str> },
    #[error(
        "admin.tokens: the token of {name} in the environment variable {variable} has {length} characters; use at least \
         {SECRET_BYTES_MIN}, such as the output of `openssl rand -hex 32`"
    )]
    Short { variable: String, name: Box<str>, length: usize },
}

impl Tokens {
    /// The token of the environment, if there is one, and those of the file.
    pub(crate) fn new(administrator: Option<&Secret>, named: Vec<Token>) -> Self {
        let administrator = administrator.map(|secret| Token {
            name: ADMINISTRATOR.into(),
            role: Role::Admin,
            hash: KeyHash::of(secret.reveal().as_bytes()),
        });
        let tokens = administrator.into_iter().chain(named).collect();
        Self { tokens, is_required: false, brute_force: BruteForceGuard::default() }
    }

    /// Requires a token to read from this machine, too, if `is_required`.
    pub(crate) fn required(self, is_required: bool) -> Self {
        Self { is_required, ..self }
    }

    /// The counter of wrong secrets of all kinds.
    pub(crate) fn brute_force(&self) -> &BruteForceGuard {
        &self.brute_force
    }

    /// The name of the token in `headers`, if it has at least this role.
    pub(crate) fn holder(&self, headers: &HeaderMap, address: IpAddr, role: Role) -> Result<&str, TokenRejection> {
        self.is_there()?;
        Ok(self.known(headers, address)?.ok_or_else(unauthorized)?.at_least(role)?)
    }

    /// The response to a rejected request, after its delay, if it has one.
    pub(crate) async fn delayed(&self, rejection: TokenRejection) -> Problem {
        if rejection.is_delayed {
            // Boxed, because a delay is rare, and the futures of all requests would reserve space for it.
            Box::pin(self.brute_force.delay()).await;
        }
        rejection.problem
    }

    /// The same outcome, with the response to a rejection after its delay.
    async fn settle<T>(&self, outcome: Result<T, TokenRejection>) -> Result<T, Problem> {
        match outcome {
            Ok(value) => Ok(value),
            Err(rejection) => Err(self.delayed(rejection).await),
        }
    }

    /// Without any token no change is possible.
    fn is_there(&self) -> Result<(), Problem> {
        if !self.tokens.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "changes are off because no admin token is configured; \
             set SLUICEGATE_ADMIN_TOKEN and restart the server",
        ))
    }

    /// The name of the token of a request to change something, if it has at least this role.
    pub(crate) fn writer<'t>(
        &'t self,
        head: &Parts,
        role: Role,
    ) -> impl Future<Output = Result<&'t str, Problem>> + Send + use<'t> {
        let outcome = same_origin::own_page(head).map_err(TokenRejection::from);
        self.settle(outcome.and_then(|()| self.holder(&head.headers, peer(&head.extensions), role)))
    }

    /// Accepts a token, or a client on this machine without one. A wrong token is always rejected.
    pub(crate) fn reader<'t>(
        &'t self,
        head: &Parts,
    ) -> impl Future<Output = Result<(), Problem>> + Send + use<'t> {
        self.settle(self.may_read(head))
    }

    fn may_read(&self, head: &Parts) -> Result<(), TokenRejection> {
        match self.known(&head.headers, peer(&head.extensions))? {
            Some(token) => Ok(token.at_least(Role::Read).map(|_| ())?),
            None if !self.is_required && same_origin::is_local(head) => Ok(()),
            None => Err(unauthorized().into()),
        }
    }

    /// The token that was sent, if any. Wrong tokens of other clients never cause the rejection of a valid one.
    fn known(&self, headers: &HeaderMap, address: IpAddr) -> Result<Option<&Token>, TokenRejection> {
        if !headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        match self.find(headers) {
            Some(token) => Ok(Some(token)),
            None if self.brute_force.record_failure(address) => {
                Err(TokenRejection { problem: too_many_guesses(), is_delayed: true })
            }
            None => Err(unauthorized().into()),
        }
    }

    /// Compares the credential with all tokens, in constant time.
    fn find(&self, headers: &HeaderMap) -> Option<&Token> {
        let sent = KeyHash::of(bearer(headers)?);
        let mut found = u32::MAX;
        for (token, index) in self.tokens.iter().zip(0_u32..) {
            let is_same: Choice = token.hash.as_bytes().ct_eq(sent.as_bytes());
            found = u32::conditional_select(&found, &index, is_same);
        }
        self.tokens.get(found as usize)
    }
}

/// The tokens of the file.
pub(crate) fn named(settings: &[TokenSettings], environment: &Environment) -> Result<Vec<Token>, TokenError> {
    let token = |TokenSettings { name, role, is }: &TokenSettings| {
        let hash = match is {
            TokenSecret::Hash(hash) => *hash,
            TokenSecret::Env(variable) => {
                let token = environment.get(variable).filter(|token| !token.is_empty());
                let missing = || TokenError::Missing { variable: variable.clone(), name: name.clone() };
                let token = token.ok_or_else(missing)?;
                if token.len() < SECRET_BYTES_MIN {
                    let (variable, name) = (variable.clone(), name.clone());
                    return Err(TokenError::Short { variable, name, length: token.len() });
                }
                KeyHash::of(token.as_bytes())
            }
        };
        Ok(Token { name: name.clone(), role: *role, hash })
    };
    settings.iter().map(token).collect()
}

impl Token {
    fn at_least(&self, role: Role) -> Result<&str, Problem> {
        if self.role >= role {
            return Ok(&self.name);
        }
        let (has, needs) = (self.role.word(), role.word());
        let detail = format!("the token of {} has the role {has}; this needs the role {needs}", self.name);
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }
}

/// The response to repeated wrong tokens.
fn too_many_guesses() -> Problem {
    let detail = "too many wrong tokens came from this network; send the right one, which is accepted at any time";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).header(header::RETRY_AFTER, HeaderValue::from_static("6"))
}

/// Accepts a token with the role to operate.
pub(crate) fn require<'t>(
    tokens: &'t Tokens,
    headers: &HeaderMap,
    address: IpAddr,
) -> impl Future<Output = Result<(), Problem>> + Send + use<'t> {
    tokens.settle(tokens.holder(headers, address, Role::Operate).map(|_| ()))
}

/// The peer address of a request's connection.
pub(crate) fn peer(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(peer)| peer.ip().to_canonical())
}

/// Accepts a token with the role to read, or a client on this machine.
pub(crate) fn require_to_read<'t>(
    tokens: &'t Tokens,
    head: &Parts,
) -> impl Future<Output = Result<(), Problem>> + Send + use<'t> {
    tokens.reader(head)
}

/// The response to a missing or wrong token.
pub(crate) fn unauthorized() -> Problem {
    challenge("this needs the admin token; send it as `Authorization: Bearer …`")
}

/// A 401 with a challenge and this detail.
pub(crate) fn challenge(detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

/// The credentials of the only `Authorization` header, if its scheme is `Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    // A proxy in front may have read another one of two headers.
    if values.next().is_some() {
        return None;
    }
    let (scheme, credentials) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| credentials.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use futures_util::FutureExt as _;

    use super::*;

    fn tokens(token: Option<&str>) -> Tokens {
        Tokens::new(token.map(|text| Secret::new(text.to_owned())).as_ref(), Vec::new())
    }

    fn status(token: Option<&str>, authorization: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("valid"));
        }
        let tokens = tokens(token);
        match require(&tokens, &headers, Ipv4Addr::LOCALHOST.into()).now_or_never().expect("no delay") {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn only_the_configured_token_is_accepted() {
        let token = Some("correct-horse");
        for (authorization, expected) in [
            (&["Bearer correct-horse"][..], 200),
            (&["bearer correct-horse"], 200),
            (&["Bearer  correct-horse"], 200),
            (&[], 401),
            (&[""], 401),
            (&["Bearer"], 401),
            (&["Bearer "], 401),
            (&["Bearer correct-hors"], 401),
            (&["Bearer correct-horse2"], 401),
            (&["Basic correct-horse"], 401),
            (&["correct-horse"], 401),
            (&["Bearer correct-horse", "Bearer correct-horse"], 401),
        ] {
            assert_eq!(status(token, authorization), expected, "{authorization:?}");
        }
    }

    #[test]
    fn clients_on_this_machine_read_without_a_token() {
        let status = |peer: &str, token: Option<&str>, authorization: Option<&'static str>| {
            let mut head = axum::http::Request::new(()).into_parts().0;
            if let Ok(peer) = peer.parse::<SocketAddr>() {
                head.extensions.insert(ConnectInfo(peer));
            }
            if let Some(value) = authorization {
                head.headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            match require_to_read(&tokens(token), &head).now_or_never().expect("no delay") {
                Ok(()) => 200,
                Err(problem) => problem.into_response().status().as_u16(),
            }
        };
        for peer in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!((status(peer, None, None), status(peer, Some("t"), None)), (200, 200), "{peer}");
        }
        for peer in ["192.0.2.7:1", "[2001:db8::1]:1", "0.0.0.0:1", "nobody knows"] {
            assert_eq!((status(peer, None, None), status(peer, Some("t"), None)), (401, 401), "{peer}");
            assert_eq!(status(peer, None, Some("Bearer t")), 401, "{peer}");
            assert_eq!(status(peer, Some("t"), Some("Bearer u")), 401, "{peer}");
            assert_eq!(status(peer, Some("t"), Some("Bearer t")), 200, "{peer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_to_wrong_tokens_beyond_the_limit_are_delayed_and_a_right_token_is_accepted_at_once() {
        let tokens = tokens(Some("correct-horse"));
        let send = |token: &str| {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("valid");
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            require(&tokens, &headers, Ipv4Addr::LOCALHOST.into())
        };
        for _ in 0..10 {
            let problem = send("wrong").now_or_never().expect("at once").expect_err("wrong");
            assert_eq!(problem.status(), StatusCode::UNAUTHORIZED);
        }
        let started = tokio::time::Instant::now();
        let problem = send("wrong").await.expect_err("wrong");
        assert_eq!(problem.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(started.elapsed() >= std::time::Duration::from_secs(1));
        assert!(send("correct-horse").now_or_never().expect("at once").is_ok());
    }

    #[test]
    fn without_a_configured_token_every_change_is_403() {
        assert_eq!(status(None, &["Bearer anything"]), 403);
        assert_eq!(status(None, &[]), 403);
    }
}
