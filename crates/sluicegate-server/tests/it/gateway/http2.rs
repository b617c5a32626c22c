//! HTTP/2 to the client, to the upstream, and on both sides.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response, Version};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::Gateway;
use super::upstream::{Upstream, header, headers};
use crate::server::PATIENCE;

/// A connection with HTTP/2 prior knowledge.
pub(crate) async fn connect(address: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.expect("the listener accepts");
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    sender
}

/// A body with trailers.
struct WithTrailers(Vec<Frame<Bytes>>);

impl WithTrailers {
    fn body(text: &'static str, trailer: &'static str) -> Body {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(trailer));
        Body::new(Self(vec![Frame::trailers(trailers), Frame::data(Bytes::from_static(text.as_bytes()))]))
    }
}

impl http_body::Body for WithTrailers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

/// Responds with the parts of the request that it received, and with trailers.
async fn describe(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let sent = body.collect().await.expect("a whole body").to_bytes();
    let seen = |name: &str| head.headers.get(name).cloned().unwrap_or_else(|| HeaderValue::from_static("none"));
    let response = Response::builder()
        .header("x-version", if head.version == Version::HTTP_2 { "2" } else { "1.1" })
        .header("x-uri", head.uri.to_string())
        .header("x-host", seen("host"))
        .header("x-te", seen("te"))
        .header("x-forwarded", seen("x-forwarded-for"))
        .header("x-length", sent.len());
    Ok(response.body(WithTrailers::body("answer", "7")).expect("a response"))
}

/// Serves one connection with HTTP/2 only.
pub(super) async fn serve(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(io), service_fn(describe)).await);
}

/// An upstream with HTTP/2 prior knowledge.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

fn seen<'r>(response: &'r Response<Incoming>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_is_served_by_an_http1_upstream() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("two-to-one", upstream.address, "");
    let mut sender = connect(gateway.address()).await;
    let request = Request::post("http://api.example.com/a/../b?x=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("x-forwarded-for", "1.2.3.4")
        .body(Body::from("hello"));
    let response = sender.send_request(request.expect("a request")).await.expect("an answer");
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    let head = std::str::from_utf8(&body).expect("text");
    assert!(head.starts_with("POST /b?x=1 HTTP/1.1\r\n") && head.ends_with("\r\n\r\nhello"), "{head}");
    assert_eq!(header(head, "host"), Some("api.example.com"));
    assert_eq!(headers(head, "cookie").collect::<Vec<_>>(), ["a=1; b=2"]);
    assert_eq!((header(head, "te"), header(head, "x-forwarded-for")), (None, Some("127.0.0.1")));

    let two_hosts = Request::get("http://real/a").header("host", "other").body(Body::empty());
    let refused = sender.send_request(two_hosts.expect("a request")).await.expect("an answer");
    assert_eq!(refused.status(), 400);
    let connect = Request::connect("a:443").body(Body::empty()).expect("a request");
    assert_eq!(sender.send_request(connect).await.expect("an answer").status(), 400);
    assert_eq!(upstream.heads().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_length_is_forwarded_once() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("two-lengths", upstream.address, "");
    let mut sender = connect(gateway.address()).await;
    let request = Request::post("http://t/a").header("content-length", "5").header("content-length", "5");
    let request = request.body(Body::from("hello")).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    let head = std::str::from_utf8(&body).expect("text");
    assert_eq!(headers(head, "content-length").collect::<Vec<_>>(), ["5"], "{head}");
}

/// An upstream that does not read the body of such a request would parse it as the next request on the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_an_unusual_method_is_the_last_of_its_connection_to_an_http1_upstream() {
    let upstream = Upstream::start(|caller, _| {
        while let Some(head) = caller.read_head() {
            caller.send("HTTP/1.1 204 No Content\r\n\r\n");
            if header(&head, "connection") == Some("close") {
                drop(caller.read_to_end());
            }
        }
    });
    let gateway = Gateway::to("unread", upstream.address, "");
    let mut sender = connect(gateway.address()).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        for is_length_known in [true, false] {
            let request = Request::builder().method(method).uri("http://t/a");
            let request = match is_length_known {
                true => request.header("content-length", smuggled.len()).body(Body::from(smuggled)),
                false => request.body(WithTrailers::body(smuggled, "0")),
            };
            let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
            assert_eq!(answer.status(), 204, "{method}");
        }
    }
    let heads = upstream.heads();
    assert_eq!(heads.len(), 8, "{heads:#?}");
    for head in heads {
        assert!(!head.starts_with("GET /smuggled"), "{head}");
        assert_eq!(header(&head, "connection"), Some("close"), "{head}");
        let framing = ["content-length", "transfer-encoding"].map(|name| header(&head, name).is_some());
        assert!(framing == [true, false] || framing == [false, true], "{head}");
    }
}

/// The client's window is closed, so the server cannot send a byte of any response.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_holds_no_upstream() {
    let (gone, is_gone) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello");
        assert!(caller.read_to_end().is_empty());
        gone.send(()).expect("the test waits");
    });
    let gateway = Gateway::to("shut-window", upstream.address, ", idle_timeout: 100ms, concurrency: 2");
    let stream = TcpStream::connect(gateway.address()).await.expect("the listener accepts");
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let handshake = builder.initial_stream_window_size(0).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    let mut answers = Vec::new();
    for _ in 0..2 {
        let request = Request::get("http://t/a").body(Body::empty()).expect("a request");
        answers.push(sender.send_request(request).await.expect("a head"));
    }
    tokio::task::block_in_place(|| {
        for _ in 0..2 {
            is_gone.recv_timeout(PATIENCE).expect("the gateway lets go of the upstream");
        }
    });
}

/// A body that the test feeds; it ends when the sender is dropped.
struct Fed(tokio::sync::mpsc::Receiver<Bytes>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A hundred uploads on one connection exceed the 96 places of the upstream. Four of them send no byte, and the others
/// send one. Unfinished uploads get only a share of the places, and the gateway forwards no upload without a byte.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_do_not_come_leave_places_for_others() {
    let upstream = Upstream::start(|caller, _| {
        while let Some(head) = caller.read_head() {
            match headers(&head, "content-length").next() {
                Some("5") => {
                    caller.read(5);
                    caller.answer("", "posted");
                }
                Some(_) => drop(caller.read_to_end()),
                None => caller.answer("", "got"),
            }
        }
    });
    let gateway = Gateway::to("trickled", upstream.address, ", concurrency: 96, connect_timeout: 60s");
    let mut sender = connect(gateway.address()).await;
    let mut uploads = Vec::new();
    for count in 0..100 {
        let (feed, pieces) = tokio::sync::mpsc::channel(1);
        let path = if count < 4 { "nothing" } else { "slow" };
        if count >= 4 {
            feed.send(Bytes::from_static(b"x")).await.expect("room");
        }
        let request = Request::post(format!("http://t/{path}")).header("content-length", "1000");
        let request = request.body(Body::new(Fed(pieces))).expect("a request");
        uploads.push((feed, tokio::spawn(sender.send_request(request))));
    }
    tokio::task::block_in_place(|| {
        let slow = || upstream.heads().iter().filter(|head| head.starts_with("POST /slow")).count();
        sluicegate_testkit::poll::until_true("slow uploads", PATIENCE, || slow() >= 24);
        for round in 0..10 {
            let got = gateway.get("/get", &[]);
            assert_eq!((got.status, got.body.as_str()), (200, "got"), "round {round}");
            let post = "POST /post HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
            let posted = gateway.send(post);
            assert_eq!((posted.status, posted.body.as_str()), (200, "posted"), "round {round}");
        }
        assert!(!upstream.heads().iter().any(|head| head.starts_with("POST /nothing")));
    });
}

/// Uploads that pause after they got a place. They keep a quarter of the places; the others are aborted when needed.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_pause_later_make_room_for_others() {
    const BYTES: usize = 20_005;
    let upstream = Upstream::start(|caller, _| {
        while let Some(head) = caller.read_head() {
            match header(&head, "content-length") {
                Some(_) => {
                    caller.read(BYTES);
                    caller.answer("", "posted");
                }
                None => caller.answer("", "got"),
            }
        }
    });
    // Shorter than the pause that ends an upload with 408.
    let gateway = Gateway::to("paused", upstream.address, ", concurrency: 8, connect_timeout: 4s");
    let mut sender = connect(gateway.address()).await;
    let mut uploads = Vec::new();
    for _ in 0..8 {
        let (feed, pieces) = tokio::sync::mpsc::channel(2);
        feed.send(Bytes::from(vec![b'x'; BYTES - 5])).await.expect("room");
        let request = Request::post("http://t/upload").header("content-length", BYTES);
        let request = request.body(Body::new(Fed(pieces))).expect("a request");
        uploads.push((feed, tokio::spawn(sender.send_request(request))));
    }
    tokio::task::block_in_place(|| {
        sluicegate_testkit::poll::until_true("uploads", PATIENCE, || upstream.heads().len() >= 8);
        for round in 0..5 {
            let got = gateway.get("/get", &[]);
            assert_eq!((got.status, got.body.as_str()), (200, "got"), "round {round}");
        }
    });
    let mut statuses = Vec::new();
    for (feed, answer) in uploads {
        // An aborted upload accepts no more data, so the send may fail.
        let _ = feed.send(Bytes::from_static(b"hello")).await;
        drop(feed);
        statuses.push(answer.await.expect("no panic").expect("an answer").status().as_u16());
    }
    let aborted = statuses.iter().filter(|status| **status == 503).count();
    // One place is enough for sequential requests. A second upload is aborted if the first place is not free in time.
    assert!(matches!(aborted, 1 | 2), "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 8 - aborted, "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http1_client_is_served_by_an_http2_upstream() {
    let gateway = Gateway::to("one-to-two", upstream().await, ", http2: true");
    for _ in 0..3 {
        let request =
            "POST /a?b HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        let answer = tokio::task::block_in_place(|| gateway.send(request));
        assert_eq!((answer.status, answer.header("x-version")), (200, Some("2")));
        assert_eq!(answer.header("x-uri"), Some("http://shop.example/a?b"), "the host is kept");
        assert_eq!((answer.header("x-host"), answer.header("x-te")), (Some("none"), Some("none")));
        assert_eq!((answer.header("x-length"), answer.header("x-forwarded")), (Some("5"), Some("127.0.0.1")));
        assert!(answer.body.contains("answer"));
    }
}

/// The requirements of gRPC: HTTP/2 from end to end, `te: trailers`, and the trailers of responses.
#[tokio::test(flavor = "multi_thread")]
async fn the_trailers_of_an_answer_arrive() {
    let gateway = Gateway::to("grpc", upstream().await, ", http2: true");
    let mut sender = connect(gateway.address()).await;
    let request = Request::post("http://t/grpc.Service/Call")
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(Body::from("question"));
    let response = sender.send_request(request.expect("a request")).await.expect("an answer");
    assert_eq!((seen(&response, "x-te"), seen(&response, "x-length")), ("trailers", "8"));
    assert!(response.headers().contains_key("ratelimit"));
    let collected = response.into_body().collect().await.expect("whole");
    assert_eq!(collected.trailers().expect("trailers")["grpc-status"], "7");
    assert_eq!(collected.to_bytes(), "answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_resets_the_stream() {
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = Upstream::start(move |caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello");
        may_go_on.lock().expect("no panic").recv().expect("the client has seen it");
    });
    let gateway = Gateway::to("reset", upstream.address, "");
    let mut sender = connect(gateway.address()).await;
    let request = Request::get("http://t/a").body(Body::empty()).expect("a request");
    let mut body = sender.send_request(request).await.expect("a head").into_body();
    let first = body.frame().await.expect("a piece").expect("whole");
    assert_eq!(first.into_data().expect("data"), "hello");
    go_on.send(()).expect("the upstream waits");
    assert!(body.collect().await.is_err());
}
