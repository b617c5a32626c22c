//! `GET /openapi.json`, the API described, and `GET /docs`, a page that shows it and lets one try it.
//!
//! All of it is plain files, embedded: nothing is fetched from elsewhere, and the page's policy forbids it.

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};

use crate::app::App;

/// The description, as it is served. Its tests send every example in it to the router.
pub(super) const OPENAPI: &str = include_str!("../../ui/openapi.json");

/// Only our own files, only this origin, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The routes of the description and its page.
pub(super) fn routes() -> [(&'static str, MethodRouter<App>); 4] {
    [
        ("/openapi.json", get(async || file("application/json", OPENAPI))),
        ("/docs", get(async || file("text/html; charset=utf-8", include_str!("../../ui/docs.html")))),
        (
            "/docs/docs.css",
            get(async || {
                file(
                    "text/css; charset=utf-8",
                    concat!(include_str!("../../ui/palette.css"), include_str!("../../ui/docs.css")),
                )
            }),
        ),
        ("/docs/docs.js", get(async || file("text/javascript; charset=utf-8", include_str!("../../ui/docs.js")))),
    ]
}

/// A file of ours, as it is served.
pub(super) fn file(media_type: &'static str, text: &'static str) -> Response {
    let fields: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The files change with the server, and asking again costs nothing.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (fields.map(|(name, value)| (name, HeaderValue::from_static(value))), text).into_response()
}
