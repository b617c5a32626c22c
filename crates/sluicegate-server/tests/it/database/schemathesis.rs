//! Schemathesis tests the admin API against its OpenAPI description: valid and invalid input, in every order it
//! generates.

use std::path::PathBuf;
use std::process::Command;

use super::*;

/// The checks of every response. Wrong tokens have tests elsewhere: after some of them, the server blocks further
/// requests.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance,use_after_free";

/// The program that `cargo xtask test` has installed. It runs beside the binary under test.
fn program() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_BIN_EXE_sluicegate"));
    target.ancestors().nth(2).expect("target/debug/sluicegate").join("tools/schemathesis/bin/schemathesis")
}

#[test]
fn responses_match_their_description_for_any_request() {
    let database = Owned::sqlite();
    let server = database.serve(FILE);
    let description = format!("http://{}/admin/v1/openapi.json", server.address("admin"));
    let folder = tempfile::tempdir().expect("a folder");
    let program = program();
    let output = Command::new(&program)
        .args(["run", &description, "--header", &format!("Authorization: Bearer {TOKEN}"), "--checks", CHECKS])
        .args(["--max-examples", "25", "--seed", "1", "--no-color", "--request-timeout", "30", "--workers", "1"])
        .args(["--suppress-health-check", "all"])
        .current_dir(folder.path())
        .output()
        .unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo xtask test --only schemathesis` installs it", program.display())
        });
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Tested: 22"), "not everything was tried: {text}");
    // After all that, the remaining data is still usable.
    assert_eq!(admin(&server, "GET", "/admin/v1/rules", "").status, 200);
    let (code, _) = run(&["rules", "export", "--database", &database.url]);
    assert_eq!(code, 0);
}
