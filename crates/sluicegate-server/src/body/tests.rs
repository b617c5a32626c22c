//! Bounds on bodies, with chunks from the test and paused time.

use axum::body::to_bytes;
use axum::response::IntoResponse as _;
use http_body_util::Full;
use tokio::sync::mpsc;

use axum::http::HeaderValue;

use super::*;

/// A body whose chunks the test sends; it ends when the sender is dropped.
struct Fed(mpsc::Receiver<&'static str>);

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = ready!(self.0.poll_recv(cx));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

/// A body whose connection failed.
struct Broken;

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }
}

const LIMITS: RequestLimits = RequestLimits {
    body_bytes_max: 10,
    body_idle: Duration::from_secs(10),
    body_idle_answered: Duration::from_secs(25),
    body_rate_min: 0,
    whole_request: Duration::from_secs(30),
};

fn fed_request() -> (mpsc::Sender<&'static str>, Request<Body>, BodyWatch) {
    let (sender, receiver) = mpsc::channel(8);
    let request = Request::new(Body::new(Fed(receiver)));
    let (request, watch) = limit(request).expect("the head is fine");
    (sender, request, watch)
}

fn limit(request: Request<Body>) -> Result<(Request<Body>, BodyWatch), Problem> {
    check_head(&request)?;
    check_length(request.headers(), &LIMITS)?;
    Ok(watch(request, &LIMITS))
}

fn refusal(request: Request<Body>) -> StatusCode {
    limit(request).expect_err("over a bound").into_response().status()
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let request = Request::new(Body::new(Full::from("0123456789")));
    let (request, watch) = limit(request).expect("within bounds");
    assert_eq!(read(request.into_body()).await.expect("readable"), "0123456789");
    assert_eq!(watch.fault(), None);
}

#[tokio::test]
async fn one_byte_more_without_a_claimed_length_is_413() {
    let (sender, request, watch) = fed_request();
    sender.send("0123456789").await.expect("room");
    sender.send("x").await.expect("room");
    // The sender stays open: the error does not wait for the end of the body.
    let problem = read(request.into_body()).await.expect_err("too long");
    assert_eq!(problem.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(watch.fault(), Some(BodyFault::TooLarge { max: 10 }));
    drop(sender);
}

#[test]
fn a_claimed_length_over_the_limit_is_413_before_reading() {
    let request = Request::builder().header(header::CONTENT_LENGTH, "11").body(Body::empty());
    assert_eq!(refusal(request.expect("valid")), StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn a_long_uri_is_414() {
    let uri = format!("/{}", "a".repeat(MAX_URI_BYTES));
    let request = Request::builder().uri(uri).body(Body::empty());
    assert_eq!(refusal(request.expect("valid")), StatusCode::URI_TOO_LONG);
}

#[test]
fn too_many_headers_are_431() {
    let mut request = Request::new(Body::empty());
    for _ in 0..=MAX_HEADERS {
        request.headers_mut().append("x-many", HeaderValue::from_static("1"));
    }
    assert_eq!(refusal(request), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_is_408_after_the_idle_time() {
    let (sender, request, watch) = fed_request();
    let started = Instant::now();
    let problem = read(request.into_body()).await.expect_err("too slow");
    assert_eq!(problem.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(started.elapsed().as_secs(), 10);
    assert_eq!(watch.fault(), Some(BodyFault::TooSlow));
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn a_trickling_body_is_408_after_the_whole_time() {
    let (sender, request, _watch) = fed_request();
    let started = Instant::now();
    let trickle = tokio::spawn(async move {
        // Always just in time not to be idle.
        while sender.send("x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(9)).await;
        }
    });
    let problem = read(request.into_body()).await.expect_err("too slow");
    assert_eq!(problem.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(started.elapsed().as_secs(), 30);
    trickle.abort();
}

/// The time until a body is cut, at a minimum rate of 100 bytes per second. The body starts with `first` bytes, and sends
/// `bytes` every `pause`. `None` if it reaches its end, after a day.
async fn lasts(first: usize, bytes: usize, pause: Duration) -> Option<u64> {
    static TEXT: [u8; 100_000] = [b'x'; 100_000];
    let text = |bytes: usize| str::from_utf8(&TEXT[..bytes]).expect("text");
    let limits =
        RequestLimits { body_bytes_max: u64::MAX, body_rate_min: 100, whole_request: Duration::MAX, ..LIMITS };
    let (sender, receiver) = mpsc::channel(1);
    let (request, watch) = watch(Request::new(Body::new(Fed(receiver))), &limits);
    let started = Instant::now();
    tokio::spawn(async move {
        let _ = sender.send(text(first)).await;
        while started.elapsed().as_secs() < 86_400 {
            tokio::time::sleep(pause).await;
            if sender.send(text(bytes)).await.is_err() {
                return;
            }
        }
    });
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    watch.fault().map(|fault| {
        assert_eq!(fault, BodyFault::TooSlow);
        started.elapsed().as_secs()
    })
}

#[tokio::test(start_paused = true)]
async fn a_body_below_the_least_rate_is_408_however_it_is_spread() {
    let (second, half) = (Duration::from_secs(1), Duration::from_millis(500));
    // A trickle: it uses up the allowance of ten seconds and restores hardly any.
    assert_eq!(lasts(1, 1, second * 8).await, Some(10));
    assert_eq!(lasts(1, 1, half).await, Some(10));
    assert_eq!(lasts(1, 0, half).await, Some(10));
    // At half the rate the body lasts longer, and not for ever.
    assert_eq!(lasts(1, 50, second).await, Some(19));
    assert_eq!(lasts(1, 400, second * 8).await, Some(14));
    // A fast start does not pay for a long trickle.
    assert_eq!(lasts(100_000, 1, second * 8).await, Some(10));
    // At the minimum rate, in chunks of any size.
    assert_eq!(lasts(1, 100, second).await, None);
    assert_eq!(lasts(1, 50, half).await, None);
    assert_eq!(lasts(1, 900, second * 9).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pause_shorter_than_the_idle_time_is_fine() {
    let (sender, request, _watch) = fed_request();
    tokio::spawn(async move {
        for piece in ["ab", "cd", "ef"] {
            tokio::time::sleep(Duration::from_secs(9)).await;
            sender.send(piece).await.expect("still read");
        }
    });
    assert_eq!(read(request.into_body()).await.expect("readable"), "abcdef");
}

#[tokio::test(start_paused = true)]
async fn bounds_beyond_the_clock_are_no_bounds() {
    let (sender, receiver) = mpsc::channel(1);
    let limits = RequestLimits {
        body_bytes_max: u64::MAX,
        body_idle: Duration::MAX,
        body_idle_answered: Duration::MAX,
        body_rate_min: 0,
        whole_request: Duration::MAX,
    };
    let request = Request::new(Body::new(Fed(receiver)));
    let (request, _watch) = watch(request, &limits);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        sender.send("late").await.expect("still read");
    });
    assert_eq!(read(request.into_body()).await.expect("readable"), "late");
}

#[tokio::test]
async fn a_broken_body_is_400() {
    let (sender, request, _watch) = fed_request();
    drop(sender);
    // An empty body is complete.
    assert_eq!(read(request.into_body()).await.expect("readable"), "");

    let problem = read(Body::new(Broken)).await.expect_err("broken");
    assert_eq!(problem.into_response().status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn any_reader_meets_the_limit() {
    let (sender, request, watch) = fed_request();
    sender.send("0123456789x").await.expect("room");
    assert!(to_bytes(request.into_body(), usize::MAX).await.is_err());
    assert_eq!(watch.fault(), Some(BodyFault::TooLarge { max: 10 }));
}

#[tokio::test(start_paused = true)]
async fn once_the_answer_has_begun_a_pause_may_be_longer() {
    let (sender, request, watch) = fed_request();
    let reading = tokio::spawn(read(request.into_body()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(watch.is_waiting() && !watch.is_gone());
    // The timer of the shorter pause is running; it must not end the body.
    watch.answered();
    tokio::time::sleep(Duration::from_secs(15)).await;
    sender.send("late").await.expect("still read");
    assert!(watch.fault().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.pieces(), 1);
    drop(sender);
    assert_eq!(reading.await.expect("no panic").expect("readable"), "late");
    assert!(watch.is_gone());
}
