//! Lines of Envoy's default format.
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
const GOOD: &[u8] =
    b"[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 0 0 1 - \"192.0.2.7\" \"-\" \"-\" \"-\" \"-\"";

fuzz_target!(|bytes: &[u8]| {
    let mut parser = LineParser::new(Format::Envoy, &FieldMap::default());
    let first = parser.parse(bytes).map(owned);
    assert!(parser.parse(GOOD).is_ok());
    assert_eq!(parser.parse(bytes).map(owned), first);
    let Ok((at_micros, texts)) = first else { return };
    assert!(at_micros <= AT_MICROS_MAX);
    for text in &texts {
        assert!(!text.is_empty() && bytes.windows(text.len()).any(|window| window == &**text));
    }
    let [client, method, target] = &texts;
    let time = jiff::Timestamp::from_microsecond(at_micros as i64).expect("a time of these centuries").to_string();
    let written: [&[u8]; 9] =
        [b"[", time.as_bytes(), b"] \"", method, b" ", target, b" HTTP/2\" 200 - 0 0 1 - \"", client, b"\""];
    assert_eq!(parser.parse(&written.concat()).map(owned), Ok((at_micros, texts)));
});

type Owned = (u64, [Vec<u8>; 3]);

fn owned(line: LogLine<'_>) -> Owned {
    let LogLine { at_micros, client, method, target, .. } = line;
    (at_micros, [client, method, target].map(<[u8]>::to_vec))
}
