//! Access control of the decision API: it rejects pages of other sites, and requests without `api.token` if that is set.
//!
//! A page of another site can make a browser in the same network send requests here (CSRF); its requests carry `Origin`.
//! `api.hosts` also stops a page whose domain name resolves to this server (DNS rebinding), because its requests carry that
//! name as `Host`.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, StatusCode, header};

use crate::admin_tokens::{self, TokenRejection};
use crate::config::admin::Role;
use crate::config::api::ApiSettings;
use crate::engine::Engine;
use crate::http::{auth, docs};
use crate::problem::Problem;

/// Paths of health checks, which need no token: orchestrators and Envoy have none.
const HEALTH: [&str; 2] = ["/healthcheck", "/grpc.health.v1.Health/"];

/// The access settings of the configuration.
#[derive(Clone, Debug)]
pub(in crate::http) struct Access(Engine);

impl Access {
    pub(in crate::http) fn new(engine: &Engine) -> Self {
        Self(engine.clone())
    }

    /// Whether every request without an `Origin` is accepted.
    pub(in crate::http) fn is_open(&self) -> bool {
        let ApiSettings { token, hosts, .. } = self.settings();
        token.is_none() && hosts.is_empty()
    }

    fn settings(&self) -> &ApiSettings {
        self.0.api()
    }

    /// Checks a request of the client at `peer`.
    pub(in crate::http) fn check<B>(&self, request: &Request<B>, peer: IpAddr) -> Result<(), TokenRejection> {
        let path = request.uri().path();
        // Forward-auth serves trusted proxies only, which forward the headers of their clients.
        if path == auth::PATH {
            return Ok(());
        }
        self.is_own_host(request)?;
        if !docs::is_page(path) {
            self.is_own_page(request)?;
        }
        if HEALTH.iter().any(|health| path.starts_with(health)) {
            return Ok(());
        }
        self.has_token(request.headers(), peer)
    }

    fn is_own_host<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let hosts = &self.settings().hosts;
        let called = authority(request);
        let name = called.as_ref().map(|called| called.host().trim_matches(['[', ']']));
        let is_listed = name.is_some_and(|name| hosts.iter().any(|host| host.eq_ignore_ascii_case(name)));
        if hosts.is_empty() || is_listed {
            return Ok(());
        }
        let detail = "the request calls the server by a name that `api.hosts` does not list";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).field("host"))
    }

    /// The page at `/docs` has the server's own origin. That origin is accepted if no other site can have the name.
    fn is_own_page<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let own = authority(request).filter(|called| is_safe_name(called.host()));
        let is_known = |origin: &str| {
            let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let is_own = own.as_ref().is_some_and(|own| Some(own.as_str()) == authority);
            is_own || self.settings().origins.iter().any(|known| **known == *origin)
        };
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        if origins.all(|origin| origin.to_str().is_ok_and(|origin| is_known(&origin.to_ascii_lowercase()))) {
            return Ok(());
        }
        let detail =
            "the request comes from a page of another site; list its origin in `api.origins` if it may ask";
        Err(Problem::new(StatusCode::FORBIDDEN, detail).field("origin"))
    }

    /// The response to a request that [`check`](Self::check) rejected, after its delay, if it has one.
    pub(in crate::http) async fn delayed(&self, rejection: TokenRejection) -> Problem {
        self.0.admin_tokens().delayed(rejection).await
    }

    fn has_token(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), TokenRejection> {
        let Some(token) = &self.settings().token else { return Ok(()) };
        if admin_tokens::bearer(headers).is_some_and(|sent| token.matches(sent)) {
            return Ok(());
        }
        // An admin token is accepted, too.
        match self.0.admin_tokens().holder(headers, peer, Role::Operate) {
            Ok(_) => Ok(()),
            Err(rejection) if rejection.status() == StatusCode::TOO_MANY_REQUESTS => Err(rejection),
            Err(_) => Err(admin_tokens::challenge(
                "this needs the token of `api.token`; send it as `Authorization: Bearer …`",
            )
            .into()),
        }
    }
}

/// The authority that the client used for this server.
fn authority<B>(request: &Request<B>) -> Option<Authority> {
    let host = || request.headers().get(header::HOST)?.to_str().ok()?.parse().ok();
    let authority = request.uri().authority().cloned().or_else(host)?;
    authority.as_str().to_ascii_lowercase().parse().ok()
}

/// An address, or a name without a dot such as `localhost`: no other site can have it.
fn is_safe_name(host: &str) -> bool {
    let name = host.trim_matches(['[', ']']);
    name.parse::<IpAddr>().is_ok() || !name.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineOptions;
    use crate::secret::Secret;
    use crate::testing::{self, TOKEN};

    fn access(api: ApiSettings) -> Access {
        let admin_token = Some(Secret::new(TOKEN.to_owned()));
        Access::new(&testing::embedded(EngineOptions { api, admin_token, ..EngineOptions::default() }))
    }

    #[track_caller]
    fn status(access: &Access, path: &str, fields: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let checked = access.check(&request.body(()).expect("valid"), IpAddr::from([192, 0, 2, 7]));
        checked.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_listed() {
        let access = access(ApiSettings { origins: vec!["https://app.example".into()], ..ApiSettings::default() });
        let host = ("host", "limits.example:8081");
        for (path, origin, expected) in [
            ("/v1/check", "https://evil.example", 403),
            ("/v1/check", "null", 403),
            ("/v1/check", "", 403),
            ("/json", "https://evil.example", 403),
            ("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "https://evil.example", 403),
            ("/v1/check", "https://app.example", 200),
            ("/v1/check", "HTTPS://App.Example", 200),
            ("/v1/check", "https://app.example.evil.example", 403),
            ("/v1/check", "http://app.example", 403),
            // A name that another site can have proves nothing, even if the client uses it for this server.
            ("/v1/check", "http://limits.example:8081", 403),
            ("/docs", "https://evil.example", 200),
            ("/openapi.json", "https://evil.example", 200),
            ("/v1/auth", "https://evil.example", 200),
        ] {
            assert_eq!(status(&access, path, &[host, ("origin", origin)]), expected, "{path} {origin}");
        }
        assert_eq!(status(&access, "/v1/check", &[host]), 200);
        let two = [host, ("origin", "https://app.example"), ("origin", "https://evil.example")];
        assert_eq!(status(&access, "/v1/check", &two), 403);
        for own in ["127.0.0.1:8081", "[::1]:8081", "localhost:8081", "limits"] {
            let same = [("host", own), ("origin", &format!("http://{own}"))];
            assert_eq!(status(&access, "/v1/check", &same), 200, "{own}");
            let other = [("host", own), ("origin", "http://127.0.0.1:9")];
            assert_eq!(status(&access, "/v1/check", &other), 403, "{own}");
        }
    }

    #[test]
    fn with_hosts_the_server_has_no_other_name() {
        let access =
            access(ApiSettings { hosts: vec!["limits.example".into(), "::1".into()], ..ApiSettings::default() });
        for (host, expected) in [
            ("limits.example", 200),
            ("LIMITS.example:8081", 200),
            ("[::1]:8081", 200),
            ("127.0.0.1:8081", 421),
            ("rebound.example", 421),
        ] {
            assert_eq!(status(&access, "/v1/check", &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn a_configured_token_is_required() {
        let token = "0123456789abcdef";
        let access = access(ApiSettings { token: Some(Secret::new(token.to_owned())), ..ApiSettings::default() });
        let with = |path: &str, token: &str| {
            status(&access, path, &[("host", "t"), ("authorization", &format!("Bearer {token}"))])
        };
        for path in ["/v1/check", "/v1/peek", "/json", "/docs", "/openapi.json", "/unknown"] {
            assert_eq!(status(&access, path, &[("host", "t")]), 401, "{path}");
            assert_eq!((with(path, token), with(path, TOKEN)), (200, 200), "{path}");
        }
        for path in ["/v1/auth", "/healthcheck", "/grpc.health.v1.Health/Check"] {
            assert_eq!(status(&access, path, &[("host", "t")]), 200, "{path}");
        }
        let statuses: Vec<u16> = (0..30).map(|_| with("/v1/check", "0123456789abcdeX")).collect();
        assert_eq!((statuses[0], statuses[29]), (401, 429), "{statuses:?}");
        assert_eq!(with("/v1/check", token), 200, "who has the token is let in whatever others send");
    }
}
