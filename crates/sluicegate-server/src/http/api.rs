//! The api listener: the decision API, forward-auth, their description, and a page to read and try it.

use axum::Router;
use axum::routing::MethodRouter;

use super::{auth, check, docs};
use crate::app::App;

/// The router of the api listener.
pub(crate) fn router(app: App) -> Router {
    routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods)).with_state(app)
}

/// Every path that is served, as a list, so that a test can hold the description against it.
fn routes() -> Vec<(&'static str, MethodRouter<App>)> {
    check::routes().into_iter().chain(auth::routes()).chain(docs::routes()).collect()
}

#[cfg(test)]
mod tests;
