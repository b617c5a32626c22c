//! The API description: `GET /openapi.json`, and `GET /docs`, a page that shows it and sends requests.
//!
//! All files are embedded. The page loads nothing from elsewhere, and its content security policy forbids that.

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};

use crate::engine::Engine;

/// The description. Its tests send each of its examples to the router.
pub(super) const OPENAPI: &str = include_str!("../../ui/openapi.json");

/// The content security policy: only embedded files of this origin, and no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Whether `path` is the description, its page or a file of the page.
pub(super) fn is_page(path: &str) -> bool {
    matches!(path, "/openapi.json" | "/docs") || path.starts_with("/docs/")
}

/// The routes of the description, its page and the page's files.
pub(super) fn routes() -> [(&'static str, MethodRouter<Engine>); 4] {
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

/// The response with an embedded file.
pub(super) fn file(media_type: &'static str, text: &'static str) -> Response {
    let fields: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The files change with the server, and a revalidation is cheap.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (fields.map(|(name, value)| (name, HeaderValue::from_static(value))), text).into_response()
}
