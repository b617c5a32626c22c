//! The formats by example: what good lines say, and what is wrong with the others.

use super::fields::FieldMap;
use super::*;

/// What a line says, or why it says nothing.
fn read(format: Format, fields: &str, line: &[u8]) -> Result<(u64, String), Fault> {
    let fields: FieldMap = if fields.is_empty() { FieldMap::default() } else { fields.parse().unwrap() };
    let mut parser = Parser::new(format, &fields);
    let first = parser.parse(line).map(shown);
    // The second time, the time of the line is known already.
    assert_eq!(parser.parse(line).map(shown), first);
    first
}

fn shown(line: Line<'_>) -> (u64, String) {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let optional = |value: Option<&[u8]>| value.map_or("-".to_owned(), text);
    let Line { at_micros, client, method, target, identity, tenant, tier } = line;
    let names = [optional(identity), optional(tenant), optional(tier)].join(" ");
    (at_micros, format!("{} {} {} {names}", text(client), text(method), text(target)))
}

fn good(at_micros: u64, said: &str) -> Result<(u64, String), Fault> {
    Ok((at_micros, said.to_owned()))
}

#[test]
fn combined_and_common_lines() {
    let read = |line: &str| read(Format::Combined, "", line.as_bytes());
    let combined =
        r#"192.0.2.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://x" "agent""#;
    assert_eq!(read(combined), good(971_211_336_000_000, "192.0.2.7 GET /a?b=c alice - -"));
    let common = r#"2001:db8::1 - - [01/Jan/1970:00:00:00 +0000] "POST /x HTTP/1.0" 204 -"#;
    assert_eq!(read(common), good(0, "2001:db8::1 POST /x - - -"));
    let windows = format!("{common}\r");
    assert_eq!(read(&windows), read(common));
    let escaped = r#"192.0.2.7 - - [29/Feb/2024:23:59:60 +0100] "GET /\"q\" HTTP/2.0" 404 1"#;
    assert_eq!(read(escaped), good(1_709_247_599_000_000, r#"192.0.2.7 GET /\"q\" - - -"#));
    let old = r#"192.0.2.7 - Mary Ann [10/Oct/2000:13:55:36 -0700] "GET /" 200 1"#;
    assert_eq!(read(old), good(971_211_336_000_000, "192.0.2.7 GET / Mary Ann - -"));
}

#[test]
fn what_is_wrong_with_combined_lines() {
    let time = "[10/Oct/2000:13:55:36 -0700]";
    for (line, fault) in [
        (String::new(), Fault::Empty),
        ("\r".to_owned(), Fault::Empty),
        ("hello".to_owned(), Fault::NoTime),
        ("192.0.2.7 - - 10/Oct/2000".to_owned(), Fault::NoTime),
        (format!("- - - {time} \"GET / HTTP/1.1\" 200 1"), Fault::NoAddress),
        (format!("192.0.2.7 - - {time} GET / HTTP/1.1 200 1"), Fault::NoRequest),
        (format!("192.0.2.7 - - {time} \"GET / HTTP/1.1"), Fault::NoRequest),
        (format!("192.0.2.7 - - {time} \"-\" 408 0"), Fault::BadRequest),
        (format!("192.0.2.7 - - {time} \"\\x16\\x03 \\x01 HTTP/1.1\" 400 0"), Fault::BadRequest),
        (format!("192.0.2.7 - - {time} \"GET  HTTP/1.1\" 400 0"), Fault::BadRequest),
        (format!("192.0.2.7 - - {time} \"GET / HTTP/1.1\""), Fault::NoStatus),
        (format!("192.0.2.7 - - {time} \"GET / HTTP/1.1\" two 1"), Fault::NoStatus),
    ] {
        assert_eq!(read(Format::Combined, "", line.as_bytes()), Err(fault), "{line}");
    }
}

#[test]
fn times_of_the_common_format_that_are_none() {
    for time in [
        "",
        "10/Oct/2000",
        "10/Oct/2000:13:55:36",
        "10/Oct/2000:13:55:36 -07",
        "10/oct/2000:13:55:36 -0700",
        "30/Feb/2000:13:55:36 -0700",
        "00/Oct/2000:13:55:36 -0700",
        "10/Oct/2000:24:00:00 -0700",
        "10/Oct/2000:13:55:36 -9900",
        "10/Oct/9999:13:55:36 -0700",
        "31/Dec/1969:23:59:59 +0000",
        "10/Oct/20é0:13:55:36 -0700",
    ] {
        let line = format!("192.0.2.7 - - [{time}] \"GET / HTTP/1.1\" 200 1");
        assert_eq!(read(Format::Combined, "", line.as_bytes()), Err(Fault::BadTime), "{time}");
    }
}

#[test]
fn lines_of_envoy() {
    let read = |line: &str| read(Format::Envoy, "", line.as_bytes());
    let line = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1 HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "ua" "id" "host" "tcp://10.0.2.1:80""#;
    assert_eq!(read(line), good(1_460_751_420_310_000, "10.0.35.28 POST /api/v1 - - -"));
    let failed =
        r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1" 0 DC,UF 0 0 5 - "192.0.2.1, 10.0.0.1" "-" "-" "-" "-""#;
    assert_eq!(read(failed), good(1_460_751_420_310_000, "192.0.2.1, 10.0.0.1 GET / - - -"));
    for (line, fault) in [
        ("no", Fault::NoTime),
        ("[yesterday] \"GET / HTTP/1.1\" 200", Fault::BadTime),
        (r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1" 200 - 0 0 5 -"#, Fault::NoAddress),
        (r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1" 200 - 0 0 5 - "-" "ua""#, Fault::NoAddress),
        (r#"[2016-04-15T20:17:00.310Z] "- - -" 400 - 0 0 5 - "192.0.2.1" "ua""#, Fault::BadRequest),
    ] {
        let got = read(line);
        // Envoy logs hyphens for what it could not read; they are no path, and are found out where paths are read.
        let is_dash = matches!(&got, Ok((_, said)) if said.contains(" - - "));
        assert!(got == Err(fault) || is_dash, "{line}: {got:?}");
    }
}

#[test]
fn json_lines_with_usual_names() {
    let read = |line: &str| read(Format::Json, "", line.as_bytes());
    let expected = good(1_700_000_000_250_000, "192.0.2.7 GET /a - - -");
    for line in [
        r#"{"time":1700000000.25,"ip":"192.0.2.7","method":"GET","path":"/a","more":[{"time":1}]}"#,
        r#"{"ts":1700000000250,"client":{"ip":"192.0.2.7","x":{}},"request_method":"GET","uri":"/a"}"#,
        r#"{"client.ip":"192.0.2.7","@timestamp":"2023-11-14T22:13:20.250Z","request":"GET /a HTTP/1.1"}"#,
        r#"{"msec":"1700000000.250","remote_addr":"192.0.2.7","request":{"method":"GET","uri":"\u002fa"}}"#,
        r#"{"time":null,"timestamp":1700000000250000,"ip":"-","client_ip":"192.0.2.7","url":"/a"}"#,
        r#"{"time":1700000000250000000,"ip":"192.0.2.7","path":"/a"}"#,
    ] {
        assert_eq!(read(line), expected, "{line}");
    }
    for (line, fault) in [
        ("[]", Fault::NotJson),
        ("{", Fault::NotJson),
        (r#"{"time":1} {"#, Fault::NotJson),
        ("{}", Fault::NoTime),
        (r#"{"time":"now"}"#, Fault::BadTime),
        (r#"{"time":-1}"#, Fault::NoTime),
        (r#"{"time":1e99}"#, Fault::BadTime),
        (r#"{"time":99999999999}"#, Fault::BadTime),
        (r#"{"time":1}"#, Fault::NoAddress),
        (r#"{"time":1,"ip":"192.0.2.7"}"#, Fault::NoRequest),
        (r#"{"time":1,"ip":"192.0.2.7","request":"no"}"#, Fault::BadRequest),
    ] {
        assert_eq!(read(line), Err(fault), "{line}");
    }
}

#[test]
fn json_lines_with_names_of_their_own() {
    let fields = "time=when,ip=from.address,path=what,identity=who.sub,tenant=who.org,tier=who.plan";
    let line = r#"{"when":1,"from":{"address":"192.0.2.7"},"what":"/a","who":{"sub":"alice \u00e9","org":"acme","plan":"pro"}}"#;
    assert_eq!(read(Format::Json, fields, line.as_bytes()), good(1_000_000, "192.0.2.7 GET /a alice é acme pro"));
    assert_eq!(read(Format::Json, fields, br#"{"time":1}"#), Err(Fault::NoTime));
    assert_eq!(read(Format::Json, "", b"{\"time\":\"\xff\"}"), Err(Fault::NotText));
}

#[test]
fn maps_of_fields_that_are_none_are_refused_with_the_remedy() {
    for text in ["", "time", "when=ts", "time=", "time=a,time=b", "ip=a.b.c.d.e.f.g.h.i"] {
        let error = text.parse::<FieldMap>().unwrap_err();
        assert!(error.contains("; write for example time=ts,ip=client.ip, of time, ip, method"), "{error}");
    }
}
