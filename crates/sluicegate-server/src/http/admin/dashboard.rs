//! The dashboard: static files, embedded in the binary.
//!
//! The page itself needs no token, because it contains nothing confidential. The data that it shows does: the page reads
//! `GET /admin/v1/events` once per second and `GET /admin/v1/history` for the last hour. The page loads nothing from other
//! hosts, and its content security policy forbids it.

use axum::Router;
use axum::routing::get;

use crate::http::docs;

/// The routes of the page and its files.
pub(super) fn router() -> Router {
    files().into_iter().fold(Router::new(), |router, (path, media_type, text)| {
        router.route(path, get(async move || docs::file(media_type, text)))
    })
}

fn files() -> [(&'static str, &'static str, &'static str); 14] {
    const HTML: &str = "text/html; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    macro_rules! ui {
        ($file:literal) => {
            include_str!(concat!("../../../ui/", $file))
        };
    }
    [
        ("/", HTML, ui!("dashboard/index.html")),
        (
            "/dashboard/style.css",
            CSS,
            concat!(include_str!("../../../ui/palette.css"), include_str!("../../../ui/dashboard/style.css")),
        ),
        ("/dashboard/icon.svg", "image/svg+xml", ui!("dashboard/icon.svg")),
        ("/dashboard/main.js", SCRIPT, ui!("dashboard/main.js")),
        ("/dashboard/client.js", SCRIPT, ui!("dashboard/client.js")),
        ("/dashboard/dialogs.js", SCRIPT, ui!("dashboard/dialogs.js")),
        ("/dashboard/edit.js", SCRIPT, ui!("dashboard/edit.js")),
        ("/dashboard/explain.js", SCRIPT, ui!("dashboard/explain.js")),
        ("/dashboard/json.js", SCRIPT, ui!("dashboard/json.js")),
        ("/dashboard/elements.js", SCRIPT, ui!("dashboard/elements.js")),
        ("/dashboard/charts.js", SCRIPT, ui!("dashboard/charts.js")),
        ("/dashboard/numbers.js", SCRIPT, ui!("dashboard/numbers.js")),
        ("/dashboard/overview.js", SCRIPT, ui!("dashboard/overview.js")),
        ("/dashboard/rule.js", SCRIPT, ui!("dashboard/rule.js")),
    ]
}
