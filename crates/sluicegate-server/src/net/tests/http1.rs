//! HTTP/1.1: deadlines, rejections and draining.

use super::*;

const OK: &str = "GET /ok HTTP/1.1\r\nhost: t\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_connection_that_sends_nothing_is_closed() {
    let mut client = Client::connect();
    let (answer, elapsed) = client.read_to_end().await;
    assert_eq!(answer, "");
    assert_about(elapsed, 5_000);
    client.served.await.expect("the task ends");
}

#[tokio::test(start_paused = true)]
async fn half_a_head_is_not_waited_for() {
    let mut client = Client::connect();
    client.send("GET /ok HTTP/1.1\r\nhost: ").await;
    let (answer, elapsed) = client.read_to_end().await;
    assert_eq!(answer, "");
    assert_about(elapsed, 5_000);
}

/// If the deadline followed the last byte instead of the first, each byte would restart the wait.
#[tokio::test(start_paused = true)]
async fn a_trickled_head_is_not_waited_for() {
    let client = Client::connect();
    let (mut reader, mut writer) = tokio::io::split(client.io);
    let trickle = tokio::spawn(async move {
        for byte in OK.repeat(100).bytes() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if writer.write_u8(byte).await.is_err() {
                return;
            }
        }
        panic!("never cut off");
    });
    client.served.await.expect("the task ends");
    // One second to the first byte, five more for the head.
    assert_about(client.opened.elapsed(), 6_000);
    assert_eq!(reader.read(&mut [0; 16]).await.expect("a clean end"), 0);
    trickle.await.expect("cut off");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_the_next_request_and_then_closed() {
    let mut client = Client::connect();
    for _ in 0..3 {
        client.send(OK).await;
        let answer = client.read_until("fine!").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        tokio::time::sleep(Duration::from_secs(59)).await;
    }
    let (rest, elapsed) = client.read_to_end().await;
    assert_eq!(rest, "");
    // Two pauses of 59 s, then 60 s after the last response.
    assert_about(elapsed, 2 * 59_000 + 60_000);
}

#[tokio::test(start_paused = true)]
async fn a_second_head_that_never_ends_is_not_waited_for() {
    let mut client = Client::connect();
    client.send(OK).await;
    client.read_until("fine!").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    client.send("GET").await;
    let (_, elapsed) = client.read_to_end().await;
    assert_about(elapsed, 35_000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_is_waited_for() {
    let mut client = Client::connect();
    client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n").await;
    client.read_until("slow!").await;
    assert_about(client.opened.elapsed(), 100_000);
    let (_, elapsed) = client.read_to_end().await;
    assert_about(elapsed, 160_000);
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_all_answered() {
    let mut client = Client::connect();
    client.send(&OK.repeat(20)).await;
    for _ in 0..20 {
        client.read_until("fine!").await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_knows_the_peer() {
    let mut client = Client::connect();
    client.send("GET /peer HTTP/1.1\r\nhost: t\r\n\r\n").await;
    client.read_until("192.0.2.1:4242").await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_408_and_the_connection_closes() {
    let mut client = Client::connect();
    client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\nhalf").await;
    let (answer, elapsed) = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.contains("content-type: application/problem+json\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    // Ten seconds for the body, and two in which the late rest is discarded.
    assert_about(elapsed, 10_000);
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 12_000);
}

#[tokio::test(start_paused = true)]
async fn a_chunked_body_over_the_bound_is_413() {
    let mut client = Client::connect();
    client.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    // 65 times 16 KiB is one chunk more than 1 MiB; the rest is input that an unaware client continues to
    // send.
    for _ in 0..100 {
        client.send(&chunk).await;
    }
    let (answer, _) = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

/// An immediate close would reset the connection of a client that is still sending, and the client might never see the
/// response.
#[tokio::test(start_paused = true)]
async fn a_refused_body_may_be_sent_to_its_end() {
    let mut client = Client::connect();
    client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2000000\r\n\r\n").await;
    client.send(&"x".repeat(2_000_000)).await;
    let (answer, elapsed) = client.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    assert_about(elapsed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_body_that_never_comes_is_not_waited_for() {
    let mut client = Client::connect();
    client.send("POST /ignore HTTP/1.1\r\nhost: t\r\ncontent-length: 1000\r\n\r\n").await;
    let answer = client.read_until("unread").await;
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 2_000);
}

/// Whether the body has arrived already depends on timing, so it must not matter.
#[tokio::test(start_paused = true)]
async fn a_response_before_the_end_of_the_body_closes_the_connection() {
    for body in ["", "0123", "0123456789"] {
        let mut client = Client::connect();
        client.send(&format!("POST /ignore HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\n{body}")).await;
        let (answer, elapsed) = client.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert_about(elapsed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_body_was_read_keeps_the_connection() {
    let mut client = Client::connect();
    for _ in 0..2 {
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 4\r\n\r\nbody").await;
        let answer = client.read_until("body").await;
        assert!(!answer.contains("connection:"), "{answer}");
        client.send("POST /ignore HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n").await;
        let answer = client.read_until("unread").await;
        assert!(!answer.contains("connection:"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_expects_100_gets_the_rejection_instead() {
    let mut client = Client::connect();
    let head = "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2000000\r\nexpect: 100-continue\r\n\r\n";
    client.send(head).await;
    let answer = client.read_until("\r\n").await;
    assert_eq!(answer, "HTTP/1.1 413 Payload Too Large\r\n");
}

/// Without a request there is nothing to log: see `docs/operations.md`.
#[track_caller]
fn assert_bare(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    assert!(answer.contains("content-length: 0\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn too_many_headers_are_431_without_a_body() {
    let mut client = Client::connect();
    let headers: String = (0..65).map(|index| format!("x-{index}: 1\r\n")).collect();
    client.send(&format!("GET /ok HTTP/1.1\r\n{headers}\r\n")).await;
    let (answer, _) = client.read_to_end().await;
    assert_bare(&answer, "431 Request Header Fields Too Large");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_fit_the_buffer_is_431_without_a_body() {
    let mut client = Client::connect();
    // Twice the buffer: the response must not be lost, although half of the input is never read.
    client.send(&format!("GET /ok HTTP/1.1\r\nx-long: {}", "x".repeat(65_536))).await;
    let (answer, _) = client.read_to_end().await;
    assert_bare(&answer, "431 Request Header Fields Too Large");
}

#[tokio::test(start_paused = true)]
async fn garbage_and_other_versions_are_400_without_a_body_and_closed() {
    for head in [
        "\u{1}\u{2}\u{3} / HTTP/9.9\r\n\r\n",
        "GET /ok HTTP/9.9\r\nhost: t\r\n\r\n",
        "GET /ok HTTP/1.2\r\nhost: t\r\n\r\n",
    ] {
        let mut client = Client::connect();
        client.send(head).await;
        let (answer, _) = client.read_to_end().await;
        assert_bare(&answer, "400 Bad Request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_only_its_own_answer() {
    let mut client = Client::connect();
    client.send("GET /panic HTTP/1.1\r\nhost: t\r\n\r\n").await;
    let answer = client.read_until("}").await;
    assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{answer}");
    client.send(OK).await;
    client.read_until("fine!").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut() {
    let mut client = Client::connect();
    client.send("GET /big HTTP/1.1\r\nhost: t\r\n\r\n").await;
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_below_the_least_rate_is_cut_and_one_above_is_served() {
    for (bytes, is_served) in [(1, false), (2_000, false), (2_800, true)] {
        let mut client = Client::connect();
        client.send("GET /pieces HTTP/1.1\r\nhost: t\r\n\r\n").await;
        let mut piece = vec![0; bytes];
        let mut is_open = true;
        while is_open && client.opened.elapsed() < Duration::from_secs(1_000) {
            tokio::time::sleep(Duration::from_secs(10)).await;
            is_open = client.io.read_exact(&mut piece).await.is_ok() && !client.served.is_finished();
        }
        assert_eq!(is_open, is_served, "{bytes} bytes in 10 s: {:?}", client.opened.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn draining_closes_idle_connections_after_a_quiet_moment() {
    let mut client = Client::connect();
    client.send(OK).await;
    client.read_until("fine!").await;
    client.drain.raise();
    let (rest, elapsed) = client.read_to_end().await;
    assert_eq!(rest, "");
    assert_about(elapsed, 500);
}

#[tokio::test(start_paused = true)]
async fn draining_answers_the_request_that_was_on_its_way() {
    let mut client = Client::connect();
    client.send(OK).await;
    client.read_until("fine!").await;
    client.drain.raise();
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.send(OK).await;
    let (answer, _) = client.read_to_end().await;
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("fine!"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn draining_answers_the_first_request_of_a_fresh_connection() {
    let mut client = Client::connect();
    client.drain.raise();
    client.send(OK).await;
    let (answer, _) = client.read_to_end().await;
    assert!(answer.ends_with("fine!"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_a_head_that_has_begun() {
    let mut client = Client::connect();
    client.send("GET /ok HTTP/1.1\r\n").await;
    client.drain.raise();
    tokio::time::sleep(Duration::from_secs(4)).await;
    client.send("host: t\r\n\r\n").await;
    let (answer, _) = client.read_to_end().await;
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("fine!"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_answer_in_flight() {
    let mut client = Client::connect();
    client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.drain.raise();
    let (answer, elapsed) = client.read_to_end().await;
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("slow!"), "{answer}");
    assert_about(elapsed, 100_000);
}
