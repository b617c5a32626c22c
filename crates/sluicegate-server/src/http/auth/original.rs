//! Reads the client's request from the header fields of a forward-auth subrequest.
//!
//! Proxies use two families of fields: `X-Forwarded-Method`, `X-Forwarded-Uri` (Traefik, Caddy) and
//! `X-Original-Method`, `X-Original-URI` (nginx). A proxy overwrites the fields of its own family and passes the
//! other family on as the client sent it, so neither can be preferred. If both are present, they must agree, else the
//! subrequest is rejected. A client that sends such fields itself can only have its own request rejected. For the
//! same reason the client's address comes from `X-Forwarded-For`, and `Forwarded` is dropped unless it is the
//! configured trusted field.
//!
//! The caller checks that the peer is a trusted proxy.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, StatusCode};
use sluicegate::identify::address::TrustedHeader;
use sluicegate::path::PATH_BYTES_MAX;

use crate::problem::Problem;

/// The request that the client sent to the proxy.
#[derive(Debug)]
pub(super) struct OriginalRequest {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    /// With the `Host` that the client requested, and without the fields that described the request.
    pub(super) headers: HeaderMap,
}

/// The names of one family of fields.
struct Family {
    method: HeaderName,
    uri: HeaderName,
}

const FORWARDED: Family = Family {
    method: HeaderName::from_static("x-forwarded-method"),
    uri: HeaderName::from_static("x-forwarded-uri"),
};
const ORIGINAL: Family = Family {
    method: HeaderName::from_static("x-original-method"),
    uri: HeaderName::from_static("x-original-uri"),
};

const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The conventional spelling of the names.
const NO_URI: &str = "the client's request is missing: let the proxy set `X-Forwarded-Uri` or \
                      `X-Original-URI` to the path and query of the request";
const DISAGREE: &str = "`X-Forwarded-Method` and `X-Forwarded-Uri` differ from `X-Original-Method` and \
                        `X-Original-URI`: let the proxy set one pair and remove the other";

impl OriginalRequest {
    /// Reads the request that the subrequest describes. Without a method in the fields, it has the method of the
    /// subrequest.
    pub(super) fn read(question: Parts, trusted_header: TrustedHeader) -> Result<Self, Problem> {
        let Parts { method: own_method, mut headers, .. } = question;
        let fields = match (read_family(&FORWARDED, &headers)?, read_family(&ORIGINAL, &headers)?) {
            (Some(forwarded), Some(original)) if forwarded == original => forwarded,
            (Some(_), Some(_)) => return Err(bad_field(&FORWARDED.uri, DISAGREE)),
            (Some(fields), None) | (None, Some(fields)) => fields,
            (None, None) => return Err(bad_field(&FORWARDED.uri, NO_URI)),
        };
        let target = fields.uri.ok_or_else(|| bad_field(&FORWARDED.uri, NO_URI))?;
        let host = only(&HOST, &headers)?.cloned();
        if let Some(host) = host {
            headers.insert(header::HOST, host);
        }
        for name in [FORWARDED.method, FORWARDED.uri, ORIGINAL.method, ORIGINAL.uri, HOST] {
            headers.remove(name);
        }
        if trusted_header != TrustedHeader::Forwarded {
            headers.remove(header::FORWARDED);
        }
        Ok(Self { method: fields.method.unwrap_or(own_method), target, headers })
    }
}

/// The contents of one family of fields.
#[derive(PartialEq, Eq)]
struct FamilyFields {
    method: Option<Method>,
    uri: Option<PathAndQuery>,
}

/// `None` if the family is absent.
fn read_family(family: &Family, headers: &HeaderMap) -> Result<Option<FamilyFields>, Problem> {
    let method = only(&family.method, headers)?.map(|value| method(&family.method, value)).transpose()?;
    let uri = only(&family.uri, headers)?.map(|value| target(&family.uri, value)).transpose()?;
    Ok((method.is_some() || uri.is_some()).then_some(FamilyFields { method, uri }))
}

/// The value of a field that may occur once: with two, it is unknown which one the proxy wrote.
fn only<'h>(name: &HeaderName, headers: &'h HeaderMap) -> Result<Option<&'h HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => {
            Err(bad_field(name, "it occurs more than once: let the proxy replace what the client sent"))
        }
    }
}

fn method(name: &HeaderName, value: &HeaderValue) -> Result<Method, Problem> {
    Method::from_bytes(value.as_bytes()).map_err(|_| {
        bad_field(name, "it is not a method: let the proxy set it to the method of the request, such as GET")
    })
}

fn target(name: &HeaderName, value: &HeaderValue) -> Result<PathAndQuery, Problem> {
    if value.len() > PATH_BYTES_MAX {
        // The client caused this, so the response is that of a direct request.
        let detail = format!("the URI in `{name}` has {} bytes; at most {PATH_BYTES_MAX} are taken", value.len());
        return Err(Problem::new(StatusCode::URI_TOO_LONG, detail).field(name.as_str().to_owned()));
    }
    // A fragment would be dropped, while the application behind the proxy may keep it.
    let is_path = value.as_bytes().starts_with(b"/") && !value.as_bytes().contains(&b'#');
    let target = is_path.then(|| PathAndQuery::try_from(value.as_bytes()).ok()).flatten();
    target.ok_or_else(|| {
        let remedy =
            "it is not a path with or without a query, or has a `#`: let the proxy set it as the client sent it, such as /a?b=c";
        bad_field(name, remedy)
    })
}

fn bad_field(name: &HeaderName, remedy: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, remedy).field(name.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use axum::response::IntoResponse as _;

    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<OriginalRequest, Problem> {
        read_by(TrustedHeader::Either, fields)
    }

    fn read_by(trusted_header: TrustedHeader, fields: &[(&str, &str)]) -> Result<OriginalRequest, Problem> {
        let request =
            fields.iter().fold(Request::builder().method("POST").uri("/v1/auth"), |request, (name, value)| {
                request.header(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
            });
        OriginalRequest::read(request.body(()).expect("a request").into_parts().0, trusted_header)
    }

    #[track_caller]
    fn reads(fields: &[(&str, &str)], method: &str, target: &str) {
        let original = read(fields).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!((original.method.as_str(), original.target.as_str()), (method, target), "{fields:?}");
    }

    #[track_caller]
    fn refuses(fields: &[(&str, &str)], status: u16) {
        let problem = read(fields).expect_err("refused");
        assert_eq!(problem.into_response().status(), status, "{fields:?}");
    }

    #[test]
    fn either_family_describes_the_request() {
        for (method, uri) in [("x-forwarded-method", "x-forwarded-uri"), ("x-original-method", "x-original-uri")] {
            reads(&[(method, "PUT"), (uri, "/a/b?c=d")], "PUT", "/a/b?c=d");
            reads(&[(method, "OPTIONS"), (uri, "/a?")], "OPTIONS", "/a?");
            reads(&[(method, "PROPFIND"), (uri, "/")], "PROPFIND", "/");
            reads(&[(uri, "/a")], "POST", "/a");
        }
    }

    #[test]
    fn two_families_of_fields_must_agree() {
        let nginx = [("x-original-method", "POST"), ("x-original-uri", "/paid")];
        let same = [("x-forwarded-method", "POST"), ("x-forwarded-uri", "/paid")];
        reads(&[nginx, same].concat(), "POST", "/paid");
        for spoof in [
            &[("x-forwarded-uri", "/free")][..],
            &[("x-forwarded-uri", "/paid")],
            &[("x-forwarded-method", "POST")],
            &[("x-forwarded-method", "OPTIONS"), ("x-forwarded-uri", "/paid")],
            &[("x-forwarded-method", "POST"), ("x-forwarded-uri", "/paid?")],
        ] {
            refuses(&[&nginx, spoof].concat(), 400);
        }
        refuses(&[("x-original-uri", "/paid"), ("x-forwarded-method", "OPTIONS")], 400);
    }

    #[test]
    fn fields_that_do_not_describe_one_request_are_rejected() {
        for fields in [
            &[][..],
            &[("x-forwarded-method", "GET")],
            &[("x-forwarded-uri", "")],
            &[("x-forwarded-uri", "a")],
            &[("x-forwarded-uri", "*")],
            &[("x-forwarded-uri", "http://example.com/")],
            &[("x-forwarded-uri", "/a b")],
            &[("x-forwarded-uri", "/a#b")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/a")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-method", "")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-method", "G T")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-method", "GET"), ("x-forwarded-method", "GET")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-host", "a"), ("x-forwarded-host", "b")],
        ] {
            refuses(fields, 400);
        }
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        refuses(&[("x-forwarded-uri", &long)], 414);
        reads(&[("x-forwarded-uri", &long[..PATH_BYTES_MAX])], "POST", &long[..PATH_BYTES_MAX]);
    }

    #[test]
    fn the_headers_are_those_of_the_client() {
        let fields = [
            ("host", "127.0.0.1:8081"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-uri", "/"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.66"),
            ("x-api-key", "k"),
        ];
        let headers = read(&fields).expect("readable").headers;
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("host", "shop.example"), ("x-api-key", "k"), ("x-forwarded-for", "192.0.2.1")]);
        let headers = read_by(TrustedHeader::Forwarded, &fields).expect("readable").headers;
        assert_eq!(headers["forwarded"], "for=192.0.2.66");
    }
}
