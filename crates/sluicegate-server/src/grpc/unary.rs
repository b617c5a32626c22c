//! Unary gRPC calls over a body that is read as a whole and one that is written as a whole.
//!
//! tonic uses boxed streams and futures of messages for this, which costs a third of a rate limit's work.
//! Errors are still tonic's. Messages are not compressed, in either direction, because
//! they are shorter than the overhead of compression.

use std::convert::Infallible;

use axum::body::{Body, HttpBody};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use prost::Message;
use tonic::{Code, Status};

/// The frame header: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// The header field with the client's compression.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The one message of a call, of at most `bytes_max`.
pub(super) async fn read<In, B>(headers: &HeaderMap, body: B, bytes_max: usize) -> Result<In, Status>
where
    In: Message + Default,
    B: HttpBody<Data = Bytes, Error = axum::Error>,
{
    if headers.get(ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(compressed());
    }
    let body = Limited::new(body, PREFIX_BYTES.saturating_add(bytes_max)).collect().await;
    let bytes = body.map_err(|error| unread(&*error, bytes_max))?.to_bytes();
    let message = only_message(&bytes)?;
    In::decode(message).map_err(|error| Status::invalid_argument(format!("the message cannot be read: {error}")))
}

fn only_message(bytes: &[u8]) -> Result<&[u8], Status> {
    let missing = || Status::invalid_argument("the call has no whole message; send exactly one");
    let (&[flag, ref length @ ..], rest) = bytes.split_first_chunk::<PREFIX_BYTES>().ok_or_else(missing)?;
    match flag {
        0 => {}
        1 => {
            return Err(Status::internal(
                "a message says that it is compressed, and `grpc-encoding` does not say how",
            ));
        }
        _ => return Err(Status::invalid_argument(format!("a message starts with the byte {flag}; it must be 0"))),
    }
    let length = u32::from_be_bytes(*length) as usize;
    match rest.split_at_checked(length) {
        Some((message, [])) => Ok(message),
        Some(_) => Err(Status::invalid_argument("the call has more than one message; send exactly one")),
        None => Err(missing()),
    }
}

/// The client looks for the accepted encodings in this response.
fn compressed() -> Status {
    let mut status = Status::unimplemented("compressed messages are not taken; send them as they are");
    status.metadata_mut().insert("grpc-accept-encoding", tonic::metadata::MetadataValue::from_static("identity"));
    status
}

fn unread(error: &(dyn std::error::Error + 'static), bytes_max: usize) -> Status {
    if error.is::<LengthLimitError>() {
        return Status::resource_exhausted(format!("the message is longer than {bytes_max} bytes; send less"));
    }
    Status::cancelled("the call ended before its message")
}

/// The response with this message.
pub(super) fn answered(message: &impl Message) -> Response {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    // Room for a few hundred bytes for each of sixty-four descriptors.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from(Code::Ok as i32));
    // A body of unknown length: with a known length, HTTP/1.1 has no room for trailers.
    let frames = [Frame::data(bytes.freeze()), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of a body, in tests with text messages.
    async fn read_text(encoding: Option<&'static str>, body: &'static [u8]) -> Result<String, (Code, String)> {
        let mut headers = HeaderMap::new();
        if let Some(encoding) = encoding {
            headers.insert(ENCODING, HeaderValue::from_static(encoding));
        }
        let refused = |status: Status| (status.code(), status.message().to_owned());
        read::<String, _>(&headers, Body::from(body), 8).await.map_err(refused)
    }

    #[tokio::test]
    async fn a_call_has_one_message_as_it_is() {
        let message = b"\0\0\0\0\x04\x0a\x02ab";
        assert_eq!(read_text(None, message).await, Ok("ab".to_owned()));
        assert_eq!(read_text(Some("identity"), message).await, Ok("ab".to_owned()));
        assert_eq!(read_text(None, b"\0\0\0\0\0").await, Ok(String::new()));
        let cases: [(Option<&str>, &[u8], Code, &str); 9] = [
            (Some("gzip"), message, Code::Unimplemented, "compressed"),
            (None, b"\x01\0\0\0\x04\x0a\x02ab", Code::Internal, "does not say how"),
            (None, b"\x02\0\0\0\x04\x0a\x02ab", Code::InvalidArgument, "the byte 2"),
            (None, b"", Code::InvalidArgument, "no whole message"),
            (None, b"\0\0\0\0", Code::InvalidArgument, "no whole message"),
            (None, b"\0\0\0\0\x05\x0a\x02ab", Code::InvalidArgument, "no whole message"),
            (None, b"\0\0\0\0\0\0\0\0\0\0", Code::InvalidArgument, "more than one"),
            (None, b"\0\0\0\0\x04\x0a\x03ab", Code::InvalidArgument, "cannot be read"),
            (None, b"\0\0\0\0\x09\x0a\x07abcdefg", Code::ResourceExhausted, "longer than 8 bytes"),
        ];
        for (encoding, body, code, words) in cases {
            let (found, message) = read_text(encoding, body).await.expect_err("a refusal");
            assert!(found == code && message.contains(words), "{body:x?}: {found:?} {message}");
        }
    }

    #[tokio::test]
    async fn a_response_is_one_message_with_status_ok() {
        let response = answered(&"ab".to_owned());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/grpc");
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(body.trailers().expect("trailers")[GRPC_STATUS], "0");
        assert_eq!(&*body.to_bytes(), b"\0\0\0\0\x04\x0a\x02ab");
    }
}
