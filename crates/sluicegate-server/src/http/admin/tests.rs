//! The description compared with the routes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::testing::{self, TOKEN};

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_and_every_reference_leads_somewhere() {
    let document = description::document();
    let described: BTreeSet<&str> =
        document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    let served: BTreeSet<&str> = routes().iter().map(|(path, _)| *path).collect();
    assert_eq!(described, served);
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 30);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_example_of_every_body_fits_its_schema() {
    let document = description::document();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let body = &operation["requestBody"]["content"]["application/json"];
            let Some(example) = body.get("example") else { continue };
            let mut schema = body["schema"].clone();
            schema["components"] = document["components"].clone();
            let validator = jsonschema::draft202012::new(&schema).expect("a schema");
            assert!(validator.is_valid(example), "{method} {path}: {example}");
            count += 1;
        }
    }
    assert_eq!(count, 9);
}

#[tokio::test]
async fn every_described_method_is_served() {
    let document = description::document();
    let site = crate::http::HttpEndpoints::new(&testing::engine(Vec::new()), &Health::default()).admin;
    let authorization = format!("Bearer {TOKEN}");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{name}", "x");
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let headers = [("authorization", &*authorization), ("content-type", "application/json")];
            let status = testing::ask(&site, method, &path, &headers, "{}").await.status;
            let is_described = methods.get(method.to_ascii_lowercase()).is_some();
            assert_eq!(status != 405, is_described, "{method} {path}: {status}");
        }
    }
}
