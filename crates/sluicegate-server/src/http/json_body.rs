//! Reads JSON request bodies: checks the media type first, then reads the bytes.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap};
use bytes::Bytes;

use crate::body;
use crate::problem::Problem;

/// Characters of the content type that an error response repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// The whole body, if its media type is JSON. Otherwise the body stays unread.
pub(crate) async fn read(request: Request) -> Result<Bytes, Problem> {
    let (head, body) = request.into_parts();
    read_parts(&head.headers, body).await
}

/// [`read`] for a body that was split from its request.
pub(crate) async fn read_parts<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    require_json(headers)?;
    body::read(body).await
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let sent = match (values.next(), values.next()) {
        (Some(only), None) => {
            if is_json(only.as_bytes()) {
                return Ok(());
            }
            let text = String::from_utf8_lossy(only.as_bytes());
            let shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
            format!("is `{shown}`")
        }
        (Some(_), Some(_)) => "is given more than once".to_owned(),
        (None, _) => "is missing".to_owned(),
    };
    let detail = format!("the content type {sent}; send the body as JSON with `content-type: application/json`");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Whether this content type is `application/json`, with any parameters.
pub(super) fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::response::IntoResponse as _;

    use super::*;

    fn accepts(values: &[&[u8]]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::CONTENT_TYPE, HeaderValue::from_bytes(value).expect("valid"));
        }
        match require_json(&headers) {
            Ok(()) => true,
            Err(problem) => {
                assert_eq!(problem.into_response().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
                false
            }
        }
    }

    #[test]
    fn only_application_json_with_any_parameters_is_accepted() {
        for good in [
            &b"application/json"[..],
            b"Application/JSON",
            b"application/json; charset=utf-8",
            b"application/json ;x",
        ] {
            assert!(accepts(&[good]), "{good:?}");
        }
        for bad in [
            &b""[..],
            b"text/plain",
            b"application/problem+json",
            b"application/jsonp",
            b"application/json, text/plain",
            b"application/x-www-form-urlencoded",
            b"\xff\xfe",
        ] {
            assert!(!accepts(&[bad]), "{bad:?}");
        }
        assert!(!accepts(&[]));
        assert!(!accepts(&[b"application/json", b"application/json"]));
    }
}
