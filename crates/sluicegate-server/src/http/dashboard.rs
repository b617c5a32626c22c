//! The dashboard: a page of plain files, embedded, and what it reads.
//!
//! `GET /` is the page. It holds nothing that is worth guarding, so it needs no token; what it shows does:
//! `GET /admin/v1/events` tells [how things stand](overview) once per second, and `GET /admin/v1/history` what the last
//! [hour](crate::telemetry::history) was like. Nothing is fetched from elsewhere, and the page's policy forbids it.

mod feed;
mod history;
mod overview;
#[cfg(test)]
mod tests;

use std::convert::Infallible;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream;

use super::health::Health;
use super::{admin_token, docs};
use crate::app::App;
use crate::problem::Problem;
use feed::Feed;
use overview::Onlooker;

/// What the handlers share.
#[derive(Clone, Debug)]
struct Dashboard {
    app: App,
    feed: Feed,
}

/// The page and what it reads.
pub(super) fn router(app: App, health: Health) -> Router {
    let feed = Feed::new(Onlooker::new(app.clone(), health));
    let files = files().into_iter().fold(Router::new(), |router, (path, media_type, text)| {
        router.route(path, get(async move || docs::file(media_type, text)))
    });
    files
        .route("/admin/v1/events", get(events))
        .route("/admin/v1/history", get(history::history))
        .with_state(Dashboard { app, feed })
}

fn files() -> [(&'static str, &'static str, &'static str); 14] {
    const HTML: &str = "text/html; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    [
        ("/", HTML, include_str!("../../ui/dashboard/index.html")),
        (
            "/dashboard/style.css",
            CSS,
            concat!(include_str!("../../ui/palette.css"), include_str!("../../ui/dashboard/style.css")),
        ),
        ("/dashboard/icon.svg", "image/svg+xml", include_str!("../../ui/dashboard/icon.svg")),
        ("/dashboard/main.js", SCRIPT, include_str!("../../ui/dashboard/main.js")),
        ("/dashboard/client.js", SCRIPT, include_str!("../../ui/dashboard/client.js")),
        ("/dashboard/dialogs.js", SCRIPT, include_str!("../../ui/dashboard/dialogs.js")),
        ("/dashboard/edit.js", SCRIPT, include_str!("../../ui/dashboard/edit.js")),
        ("/dashboard/explain.js", SCRIPT, include_str!("../../ui/dashboard/explain.js")),
        ("/dashboard/json.js", SCRIPT, include_str!("../../ui/dashboard/json.js")),
        ("/dashboard/elements.js", SCRIPT, include_str!("../../ui/dashboard/elements.js")),
        ("/dashboard/charts.js", SCRIPT, include_str!("../../ui/dashboard/charts.js")),
        ("/dashboard/numbers.js", SCRIPT, include_str!("../../ui/dashboard/numbers.js")),
        ("/dashboard/overview.js", SCRIPT, include_str!("../../ui/dashboard/overview.js")),
        ("/dashboard/rule.js", SCRIPT, include_str!("../../ui/dashboard/rule.js")),
    ]
}

/// How things stand, once per second, until the reader goes.
async fn events(State(dashboard): State<Dashboard>, head: Parts) -> Result<Response, Problem> {
    admin_token::require_to_read(dashboard.app.admin_token(), &head)?;
    let reader = dashboard.feed.read()?;
    let events = stream::unfold(reader, async |mut reader| {
        let text = reader.next().await?;
        Some((Ok::<_, Infallible>(Event::default().event("overview").data(&*text)), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
