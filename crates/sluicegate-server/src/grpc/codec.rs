//! Protobuf messages in and out of gRPC's frames.
//!
//! As tonic's own, except that bytes which are no message are the caller's mistake and not ours: Envoy's errors should
//! tell the two apart.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Writes messages of one type and reads those of another.
#[derive(Debug)]
pub(crate) struct Codec<Out, In>(PhantomData<(Out, In)>);

impl<Out, In> Default for Codec<Out, In> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Writes messages.
#[derive(Debug)]
pub(crate) struct Writer<Out>(PhantomData<Out>);

/// Reads messages.
#[derive(Debug)]
pub(crate) struct MessageReader<In>(PhantomData<In>);

impl<Out, In> tonic::codec::Codec for Codec<Out, In>
where
    Out: Message + Send + 'static,
    In: Message + Default + Send + 'static,
{
    type Encode = Out;
    type Decode = In;
    type Encoder = Writer<Out>;
    type Decoder = MessageReader<In>;

    fn encoder(&mut self) -> Self::Encoder {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageReader(PhantomData)
    }
}

impl<Out: Message> Encoder for Writer<Out> {
    type Item = Out;
    type Error = Status;

    fn encode(&mut self, item: Out, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // It fails only for want of room, and this buffer grows.
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<In: Message + Default> Decoder for MessageReader<In> {
    type Item = In;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<In>, Status> {
        let read = In::decode(buffer).map(Some);
        read.map_err(|error| Status::invalid_argument(format!("the message cannot be read: {error}")))
    }
}
