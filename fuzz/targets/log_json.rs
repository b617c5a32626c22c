//! JSON lines. The input starts with the field names, up to a line break; an invalid map of names selects the usual ones.
//!
//! Properties: any bytes are a line or an error. Parsing the line again gives the same result, whatever was parsed in between.
//! Times are in range, and a line that is written back parses the same.

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

/// A line that is valid with the usual names and changes the state of the parser.
const GOOD: &[u8] = br#"{"time":1,"ip":"192.0.2.7","path":"/\u0061"}"#;

fuzz_target!(|bytes: &[u8]| {
    let at = memchr::memchr(b'\n', bytes).unwrap_or(0);
    let names = std::str::from_utf8(&bytes[..at]).ok().and_then(|names| names.parse::<FieldMap>().ok());
    let line = if names.is_some() { &bytes[at + 1..] } else { bytes };
    let mut parser = LineParser::new(Format::Json, &names.unwrap_or_default());
    let first = parser.parse(line).map(owned);
    let _ = parser.parse(GOOD);
    assert_eq!(parser.parse(line).map(owned), first);
    let Ok((at_micros, texts)) = first else { return };
    assert!(at_micros <= AT_MICROS_MAX);
    // A complete JSON parser accepts it as an object.
    assert!(serde_json::from_slice::<serde_json::Value>(line).map_or(true, |value| value.is_object()));
    let texts = texts.map(|text| String::from_utf8(text).expect("JSON is text"));
    let [client, method, target, identity, tenant, tier] = &texts;
    let written = serde_json::json!({
        "time": at_micros, "ip": client, "method": method, "path": target, "i": identity, "t": tenant, "r": tier,
    });
    // Small numbers are seconds, so the time needs its fraction.
    let (seconds, micros) = (at_micros / 1_000_000, at_micros % 1_000_000);
    let written =
        written.to_string().replace(&format!("\"time\":{at_micros}"), &format!("\"time\":{seconds}.{micros:06}"));
    let names = "identity=i,tenant=t,tier=r".parse().expect("a map of names");
    let mut parser = LineParser::new(Format::Json, &names);
    assert_eq!(parser.parse(written.as_bytes()).map(owned), Ok((at_micros, texts.map(String::into_bytes))));
});

type Owned = (u64, [Vec<u8>; 6]);

fn owned(line: LogLine<'_>) -> Owned {
    let LogLine { at_micros, client, method, target, identity, tenant, tier } = line;
    let optional = |text: Option<&[u8]>| text.unwrap_or_default().to_vec();
    let texts =
        [client.to_vec(), method.to_vec(), target.to_vec(), optional(identity), optional(tenant), optional(tier)];
    (at_micros, texts)
}
