//! The least work that a gRPC server can do for a request of Envoy: decode the message and send a fixed one. It is
//! the ceiling for servers that also decide. The benchmark starts it as a separate process.

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluicegate_testkit::envoy_client::{Answer, Question};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tonic::server::{Grpc, UnaryService};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

/// Responds to all requests with the message given as JSON numbers, until it is killed.
pub(crate) fn serve(answer: &str) -> Result<(), String> {
    let bytes: Vec<u8> = serde_json::from_str(answer).map_err(|error| error.to_string())?;
    let answer = prost::Message::decode(&*bytes).map_err(|error| error.to_string())?;
    // As many threads as the server: one for each core that the process may use.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(accept(Fixed(Arc::new(answer)))).map_err(|error| error.to_string())
}

async fn accept(answer: Fixed) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    eprintln!("listening grpc {}\nready", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream, answer.clone()));
    }
}

async fn converse(stream: TcpStream, answer: Fixed) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let mut grpc = Grpc::new(ProstCodec::<Answer, Question>::default());
            Ok::<_, Infallible>(grpc.unary(answer, request.map(|body| body.map_err(into_status))).await)
        }
    });
    // A client that disconnects does not matter here.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), respond)
        .await;
}

fn into_status(error: hyper::Error) -> Status {
    Status::from_error(Box::new(error))
}

/// The fixed response.
#[derive(Clone)]
struct Fixed(Arc<Answer>);

impl UnaryService<Question> for Fixed {
    type Response = Answer;
    type Future = Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, _: tonic::Request<Question>) -> Self::Future {
        ready(Ok(Response::new(Answer::clone(&self.0))))
    }
}
