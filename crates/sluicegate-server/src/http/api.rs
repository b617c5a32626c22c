//! The api listener: the decision API, forward-auth, their description, and a page to read and try it.

pub(super) mod access;

use axum::Router;

use super::{auth, check, docs};
use crate::engine::Engine;

/// The router of the api listener.
pub(crate) fn router(engine: Engine) -> Router {
    let routes = check::routes().into_iter().chain(auth::routes()).chain(docs::routes());
    routes.fold(Router::new(), |router, (path, methods)| router.route(path, methods)).with_state(engine)
}

#[cfg(test)]
mod tests;
