//! Requests that no real Envoy sends: each gets the right error, and the server keeps working.

use std::marker::PhantomData;
use std::time::Instant;

use axum::http::uri::PathAndQuery;
use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use sluicegate_testkit::envoy_client::{Answer, Code, Descriptor, EnvoyClient, Question};
use sluicegate_testkit::redis_server::RedisServer;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code as GrpcCode, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::Scene;
use crate::server::PATIENCE;

const CONFIG: &str = "
rules:
  - { name: all, per: global, limits: [ { algorithm: fixed_window, limit: 1000, window: 365d } ] }
";
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Sends bytes unchanged and reads a response.
struct Raw(PhantomData<Answer>);

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Answer;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(PhantomData)
    }

    fn decoder(&mut self) -> Self {
        Self(PhantomData)
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Answer;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Answer>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        Answer::decode(bytes).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

async fn send(client: &EnvoyClient, path: &'static str, bytes: Vec<u8>) -> Result<Answer, Status> {
    let mut grpc = Grpc::new(client.channel().clone());
    grpc.ready().await.expect("a connection");
    let answered = grpc.unary(Request::new(bytes), PathAndQuery::from_static(path), Raw(PhantomData)).await;
    answered.map(tonic::Response::into_inner)
}

async fn code(client: &EnvoyClient, bytes: Vec<u8>) -> GrpcCode {
    send(client, METHOD, bytes).await.map_or_else(|status| status.code(), |_| GrpcCode::Ok)
}

fn question(descriptors: usize) -> Question {
    Question::new("edge", vec![Descriptor::new(&[("user", "ann")]); descriptors])
}

async fn still_answers(client: &EnvoyClient) {
    let answer = client.ask(question(1)).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::Ok);
}

#[tokio::test]
async fn bytes_that_are_no_message_are_the_callers_mistake() {
    let scene = Scene::start(CONFIG);
    let good = question(1).encode_to_vec();
    let bad_text = [&b"\x0a\x04edge\x12\x08\x0a\x06\x0a\x01k\x12\x01"[..], b"\xff"].concat();
    let cases: [Vec<u8>; 6] = [
        vec![0xff; 32],
        good[..good.len() - 1].to_vec(),
        // A field with a declared length beyond the end of the message.
        vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        // Text that is not UTF-8, in the domain and in an entry.
        vec![0x0a, 0x02, 0xc3, 0x28],
        bad_text,
        // A number in place of a message.
        vec![0x10, 0x01],
    ];
    for bytes in cases {
        assert_eq!(code(&scene.client, bytes.clone()).await, GrpcCode::InvalidArgument, "{bytes:x?}");
        still_answers(&scene.client).await;
    }
    assert_eq!(code(&scene.client, Vec::new()).await, GrpcCode::InvalidArgument);
    // Unknown fields are skipped, as the Protocol Buffers encoding requires.
    assert_eq!(code(&scene.client, [good, vec![0xf8, 0x7f, 0x01]].concat()).await, GrpcCode::Ok);
}

#[tokio::test]
async fn oversized_messages_are_rejected_unread() {
    let scene = Scene::start(CONFIG);
    assert_eq!(code(&scene.client, vec![0; 10_000_000]).await, GrpcCode::ResourceExhausted);
    assert_eq!(code(&scene.client, vec![0; 1_048_577]).await, GrpcCode::ResourceExhausted);
    still_answers(&scene.client).await;
    let refused = scene.client.ask(question(1_000)).await.expect_err("too many");
    assert_eq!(refused.code(), GrpcCode::InvalidArgument);
    let most = scene.client.ask(question(256)).await.expect("an answer");
    assert_eq!((most.overall_code(), most.statuses.len()), (Code::Ok, 256));
}

/// Two requests for each list of values, and a store that a busy machine may be slow to reach.
const TWO_FOR_EACH: &str = "
rules:
  - { name: all, per: identifier, deadline: 10s, limits: [ { algorithm: fixed_window, limit: 2, window: 365d } ] }
";

/// 256 descriptors, 136 entries, 16 kB in a value, and 1 MiB in all.
#[tokio::test]
async fn the_largest_requests_are_decided_with_a_state_for_each_list_of_values() {
    let redis = RedisServer::start();
    for arguments in [&[][..], &["--store", &redis.url()]] {
        let scene = Scene::with(TWO_FOR_EACH, arguments);
        let ask = async |descriptors: &[Descriptor]| {
            scene.client.ask(Question::new("edge", descriptors.to_vec())).await.expect("an answer")
        };
        let many: Vec<Descriptor> =
            (0..256).map(|number: u32| Descriptor::new(&[("user", &number.to_string())])).collect();
        assert_eq!(ask(&many).await.remaining(), [1; 256]);
        assert_eq!(ask(&many).await.remaining(), [0; 256]);
        assert_eq!(ask(&many[255..]).await.overall_code(), Code::OverLimit);

        let long = |last: &str| format!("{}{last}", "x".repeat(16_383));
        let (one, other) = (long("a"), long("b"));
        let deep = |last: &str| {
            let entries: Vec<(&str, &str)> =
                (1..136).map(|_| ("header", "value")).chain([("last", last)]).collect();
            Descriptor::new(&entries)
        };
        // Texts that are too long for an identifier have states of their own.
        for (value, left) in [(&one, 1), (&other, 1), (&one, 0), (&other, 0)] {
            assert_eq!(ask(&[Descriptor::new(&[("token", value)])]).await.remaining(), [left]);
            assert_eq!(ask(&[deep(value)]).await.remaining(), [left]);
        }
        assert_eq!(ask(&[deep(&one)]).await.overall_code(), Code::OverLimit);

        let token = |value: &str| Descriptor::new(&[("token", value)]);
        let largest = |last: usize| {
            let last = "y".repeat(last);
            Question::new("edge", [vec![token(&long("c")); 63], vec![token(&last)]].concat())
        };
        // From here on, each byte of the last value is a byte of the message.
        let largest = largest(1_000 + 1_048_576 - largest(1_000).encoded_len());
        assert_eq!(largest.encoded_len(), 1_048_576);
        let answer = scene.client.ask(largest).await.expect("an answer");
        assert_eq!((answer.overall_code(), answer.statuses.len()), (Code::OverLimit, 64), "63 of two");
    }
}

#[tokio::test]
async fn unknown_services_and_methods_are_not_implemented() {
    let scene = Scene::start(CONFIG);
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        "/pb.lyft.ratelimit.RateLimitService/ShouldRateLimit",
    ] {
        let refused = send(&scene.client, path, question(1).encode_to_vec()).await.expect_err(path);
        assert_eq!(refused.code(), GrpcCode::Unimplemented, "{path}: {refused:?}");
    }
    still_answers(&scene.client).await;
}

/// A client may keep each watch open for any time.
#[tokio::test]
async fn watches_of_one_connection_are_bounded_and_come_back() {
    let scene = Scene::start(CONFIG);
    let mut health = HealthClient::new(scene.client.channel().clone());
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut watched = Vec::new();
    for _ in 0..8 {
        let mut watch = health.watch(ask("")).await.expect("a stream").into_inner();
        watch.message().await.expect("a message").expect("the first");
        watched.push(watch);
    }
    for _ in 0..20 {
        let refused = health.watch(ask("ratelimit")).await.expect_err("one too many");
        assert_eq!(refused.code(), GrpcCode::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("of this connection"), "{refused:?}");
    }
    assert_eq!(health.check(ask("")).await.expect("an answer").into_inner().status(), ServingStatus::Serving);
    drop(watched);
    // The server notices the end of the watches asynchronously.
    let started = Instant::now();
    while health.watch(ask("")).await.is_err() {
        assert!(started.elapsed() < PATIENCE, "no place came back");
    }
}

#[tokio::test]
async fn health_follows_readiness_and_reflection_describes_the_services() {
    let scene = Scene::start(CONFIG);
    let mut health = HealthClient::new(scene.client.channel().clone());
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for name in ["", "ratelimit"] {
        let answer = health.check(ask(name)).await.expect("an answer").into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{name:?}");
    }
    assert_eq!(health.check(ask("other")).await.expect_err("unknown").code(), GrpcCode::NotFound);
    let mut watched = health.watch(ask("ratelimit")).await.expect("a stream").into_inner();
    let first = watched.message().await.expect("a message").expect("the first");
    assert_eq!(first.status(), ServingStatus::Serving);

    let mut reflection = ServerReflectionClient::new(scene.client.channel().clone());
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let asked = tonic::codegen::tokio_stream::once(list);
    let mut answers = reflection.server_reflection_info(asked).await.expect("a stream").into_inner();
    let answer = answers.message().await.expect("a message").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<&str> = list.service.iter().map(|service| &*service.name).collect();
    assert!(names.contains(&"envoy.service.ratelimit.v3.RateLimitService"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");

    // A stopping server sends `NOT_SERVING` to its watches and ends them.
    scene.server.signal("TERM");
    let last = watched.message().await.expect("a message").expect("the last");
    assert_eq!(last.status(), ServingStatus::NotServing);
    assert!(watched.message().await.expect("the end").is_none());
    assert!(scene.server.wait().status.success());
}
