//! Lines of the combined format.
//!
//! Properties: any bytes are a line or an error. Parsing the line again gives the same result, whatever was parsed in between. All
//! texts in the result are bytes of the line, times are in range, and a line that is written back parses the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip]
#[path = "../../crates/sluicegate-server/src/cli/simulate"]
mod simulate {
    #[allow(dead_code, reason = "every target tries one format of several")]
    pub(crate) mod format;
}

use simulate::format::json::FieldMap;
use simulate::format::time::AT_MICROS_MAX;
use simulate::format::{Format, LineParser, LogLine};

/// A valid line that changes the state of the parser.
const GOOD: &[u8] = b"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1";

fuzz_target!(|bytes: &[u8]| {
    let mut parser = LineParser::new(Format::Combined, &FieldMap::default());
    let first = parser.parse(bytes).map(owned);
    assert!(parser.parse(GOOD).is_ok());
    assert_eq!(parser.parse(bytes).map(owned), first);
    let Ok((at_micros, texts)) = first else { return };
    assert!(at_micros <= AT_MICROS_MAX);
    for text in &texts {
        assert!(text.is_empty() || bytes.windows(text.len()).any(|window| window == &**text));
    }
    let [client, method, target, identity] = &texts;
    let time = jiff::Timestamp::from_microsecond(at_micros as i64).expect("a time of these centuries");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
    let user: &[u8] = if identity.is_empty() { b"-" } else { identity };
    let written: [&[u8]; 10] =
        [client, b" - ", user, b" [", time.as_bytes(), b"] \"", method, b" ", target, b" HTTP/1.1\" 200 1"];
    assert_eq!(parser.parse(&written.concat()).map(owned), Ok((at_micros, texts)));
});

type Owned = (u64, [Vec<u8>; 4]);

fn owned(line: LogLine<'_>) -> Owned {
    let LogLine { at_micros, client, method, target, identity, .. } = line;
    (at_micros, [client, method, target, identity.unwrap_or_default()].map(<[u8]>::to_vec))
}
