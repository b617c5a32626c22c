//! Limits from a control plane over xDS: good, bad and absent configurations, restarts of the control plane, and TLS.

mod environment;
mod gateway_certificates;
mod go_control_plane;
mod tls;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluicegate_testkit::control_plane::{Config, ControlPlane, Descriptor, Policy};
use sluicegate_testkit::poll;

use crate::client::{Answer, post, send};
use crate::server::{PATIENCE, Server, sluicegate};

/// Waits between attempts that are short, because the tests break connections.
const QUICK: [(&str, &str); 3] = [
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "20ms"),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "20ms"),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "100ms"),
];

const FREE_PORTS: [&str; 6] = ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// A server of this control plane with further variables.
fn command(plane: &ControlPlane, variables: &[(&str, &str)]) -> Command {
    let mut command = sluicegate(&FREE_PORTS);
    command.args(["--envoy-xds", &plane.address().to_string()]);
    command.envs(QUICK).envs(variables.iter().copied());
    command
}

fn start(plane: &ControlPlane, variables: &[(&str, &str)]) -> Server {
    Server::start_command(command(plane, variables))
}

fn daily(domain: &str, requests: u32) -> Config {
    Config::new(domain, vec![Descriptor::daily("user", requests)])
}

/// A domain with a unit that does not exist.
fn bad(domain: &str) -> Config {
    let rate_limit = Some(Policy { unit: 77, requests_per_unit: 1 });
    Config::new(domain, vec![Descriptor { rate_limit, ..Descriptor::daily("user", 1) }])
}

/// The status of a request of `user`: 200 or 429.
fn status(server: &Server, domain: &str, user: &str) -> u16 {
    let body =
        format!(r#"{{"domain":"{domain}","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#);
    post(server.address("api"), "/json", body).status
}

/// The statuses of this many requests of one user.
fn statuses(server: &Server, domain: &str, user: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| status(server, domain, user)).collect()
}

fn admin(server: &Server, path: &str) -> Answer {
    send(server.address("admin"), "GET", path)
}

/// The part of the reload status about the control plane.
fn shown(server: &Server) -> Value {
    admin(server, "/admin/v1/reload").json()["controlPlane"].take()
}

fn wait_until(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    poll::until(what, PATIENCE, || Some(shown(server)).filter(&is_so))
}

#[test]
fn a_configuration_is_fetched_acknowledged_and_in_force() {
    let plane = ControlPlane::start();
    let variables = [
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x-token:canary"),
    ];
    let mut server = start(&plane, &variables);
    let first = plane.wait_for("the first request", |all| all.first().cloned());
    let node = first.request.node.expect("a node");
    assert_eq!((node.id.as_str(), node.metadata.expect("metadata").fields.len()), ("envoy-ratelimit", 1));
    assert_eq!(first.headers.get("x-token").map(String::as_str), Some("canary"));
    assert_eq!((&*first.request.version_info, &*first.request.response_nonce), ("", ""));
    assert!(first.request.resource_names.is_empty());

    // Without a configuration nothing is limited, and everything says so.
    assert_eq!(statuses(&server, "edge", "ann", 3), [200, 200, 200]);
    let ready = admin(&server, "/readyz");
    assert_eq!((ready.status, &ready.json()["awaitingConfiguration"]), (200, &true.into()));
    assert_eq!(ready.json().get("staleConfiguration"), None);
    assert!(admin(&server, "/metrics").body.contains("\nsluicegate_envoy_xds_configured 0\n"));

    plane.push("1", &[daily("edge", 2), daily("other", 1)]);
    let ack = plane.wait_for_ack("1");
    assert_eq!(ack.request.response_nonce, "1");
    // The configuration is in force when its ACK is sent.
    assert_eq!(statuses(&server, "edge", "ann", 3), [200, 200, 429]);
    assert_eq!(statuses(&server, "unknown", "ann", 3), [200, 200, 200]);
    assert_eq!(admin(&server, "/readyz").json().get("awaitingConfiguration"), None);
    let shown = wait_until(&server, "the configuration", |shown| shown["configured"] == true);
    assert_eq!(
        (&shown["connected"], &shown["version"], &shown["domains"]),
        (&true.into(), &"1".into(), &2.into())
    );
    let metrics = admin(&server, "/metrics").body;
    for line in [
        "sluicegate_envoy_xds_configured 1",
        "sluicegate_envoy_xds_connected 1",
        "sluicegate_envoy_xds_configurations_total{outcome=\"accepted\"} 1",
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_rate_limit_total_hits{domain=\"edge\",key1=\"user\"} 3",
        "ratelimit_service_rate_limit_within_limit{domain=\"edge\",key1=\"user\"} 2",
        "ratelimit_service_rate_limit_over_limit{domain=\"edge\",key1=\"user\"} 1",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} in {metrics}");
    }
    let line = server.wait_for_line("a configuration of the control plane is in force");
    assert!(!server.lines_to_ready().join("\n").contains("canary") && !line.contains("canary"));
}

#[test]
fn a_partly_bad_configuration_is_rejected_and_its_good_domains_are_in_force() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 1), daily("b", 1)]);
    let mut server = start(&plane, &[]);
    plane.wait_for_ack("1");
    plane.push("2", &[daily("a", 3), bad("b"), daily("c", 1)]);
    let nack = plane.wait_for_nack(0);
    // The version stays that of the last accepted configuration.
    assert_eq!((&*nack.request.version_info, &*nack.request.response_nonce), ("1", "2"));
    assert_eq!(
        nack.rejection(),
        Some(
            "domain b:#1: descriptors[0].rate_limit.unit: unknown unit (value \"77\"): say which: second, minute, hour, \
             day, week, month, year; or write window: 15min, with any duration"
        )
    );
    assert_eq!(statuses(&server, "a", "ann", 4), [200, 200, 200, 429]);
    assert_eq!(statuses(&server, "b", "ann", 2), [200, 429], "the last good form");
    assert_eq!(statuses(&server, "c", "ann", 2), [200, 429]);
    let line = server.wait_for_line("a mistake in the configuration of the control plane");
    assert!(line.contains("domain b:#1"), "{line}");
    let status = poll::until("the error", PATIENCE, || {
        Some(admin(&server, "/admin/v1/reload").json()).filter(|status| status["successful"] == false)
    });
    assert!(status["problems"][0].as_str().is_some_and(|problem| problem.contains("domain b:#1")), "{status}");
    assert_eq!(admin(&server, "/readyz").json()["staleConfiguration"], true);
    assert!(admin(&server, "/metrics").body.contains("configurations_total{outcome=\"rejected\"} 1\n"));

    // A good one repairs all of it, and removes what it does not contain.
    plane.push("3", &[daily("b", 2)]);
    plane.wait_for_ack("3");
    assert_eq!(statuses(&server, "b", "bob", 3), [200, 200, 429]);
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 200]);
    poll::until_true("the repair", PATIENCE, || admin(&server, "/admin/v1/reload").json()["successful"] == true);

    // Without any resource there are no limits.
    plane.push("4", &[]);
    plane.wait_for_ack("4");
    assert_eq!(statuses(&server, "b", "bob", 2), [200, 200]);
}

/// go-control-plane answers a NACK with the same snapshot at once.
#[test]
fn repeated_nacks_are_delayed_and_the_same_errors_are_counted_once() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 1)]);
    let server = start(&plane, &[]);
    plane.wait_for_ack("1");
    let started = Instant::now();
    for number in 0..3 {
        plane.push("2", &[daily("a", 1), bad("b")]);
        plane.wait_for_nack(number);
    }
    assert!(started.elapsed() >= Duration::from_secs(3), "1 s and 2 s before the second and third");
    let metrics = admin(&server, "/metrics").body;
    assert!(metrics.contains("configurations_total{outcome=\"rejected\"} 1\n"), "{metrics}");
    plane.push("3", &[daily("a", 2)]);
    plane.wait_for_ack("3");
    assert_eq!(statuses(&server, "a", "ann", 3), [200, 200, 429]);
}

/// The versions of a control plane begin again with it.
#[test]
fn a_restarted_control_plane_is_followed_though_its_versions_begin_again() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 2)]);
    let mut server = start(&plane, &[]);
    plane.wait_for_ack("1");
    assert_eq!(statuses(&server, "a", "ann", 1), [200]);
    let address = plane.address();
    drop(plane);
    server.wait_for_line("no control plane; what was in force stays in force");
    let away = wait_until(&server, "the loss", |shown| shown["connected"] == false && !shown["error"].is_null());
    assert_eq!((&away["configured"], &away["domains"]), (&true.into(), &1.into()));
    assert_eq!(admin(&server, "/readyz").status, 200);
    // The limit stays, and so does its usage.
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 429]);

    // The same content: nothing changes.
    let plane = ControlPlane::start_with(Some(address), None);
    plane.push("1", &[daily("a", 2)]);
    let ack = plane.wait_for_ack("1");
    let first = &plane.received()[0].request;
    assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""), "a new stream begins without a version");
    assert_eq!((ack.stream, statuses(&server, "a", "ann", 1)), (0, vec![429]));
    drop(plane);

    // Other content under the same version: it is in force.
    let plane = ControlPlane::start_with(Some(address), None);
    plane.push("1", &[daily("a", 3), daily("b", 1)]);
    plane.wait_for_ack("1");
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 429]);
    assert_eq!(statuses(&server, "b", "ann", 2), [200, 429]);
}

#[test]
fn a_configuration_beyond_the_bounds_is_refused_and_the_old_one_stays() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 1)]);
    let variables = [("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "2000000")];
    let server = start(&plane, &variables);
    plane.wait_for_ack("1");
    let many = |count: usize| {
        let descriptor = |index: usize| Descriptor { key: format!("k{index}"), ..Descriptor::default() };
        Config::new("a", (0..count).map(descriptor).collect())
    };
    plane.push("2", &[many(100_000)]);
    let nack = plane.wait_for_nack(0);
    assert_eq!(nack.rejection(), Some("the configuration has more than 30000 descriptors: send fewer"));
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 429]);

    // A message beyond its bound is not read. The client connects again and gets it again, until it is smaller.
    let streams = plane.streams();
    plane.push("3", &[many(300_000)]);
    let lost = |shown: &Value| shown["error"].as_str().is_some_and(|error| error.contains("2000000 bytes"));
    let lost = wait_until(&server, "the refusal", lost);
    assert!(
        lost["error"].as_str().is_some_and(|error| error.contains("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")),
        "{lost}"
    );
    poll::until_true("another attempt", PATIENCE, || plane.streams() > streams);
    assert_eq!(statuses(&server, "a", "bob", 2), [200, 429]);
    plane.push("4", &[daily("a", 2)]);
    plane.wait_for_ack("4");
    assert_eq!(statuses(&server, "a", "carl", 3), [200, 200, 429]);
}

#[test]
fn half_messages_change_nothing() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 1), daily("b", 1)]);
    let server = start(&plane, &[]);
    plane.wait_for_ack("1");

    // Half a resource, whose domain is unknown.
    let mut half = daily("b", 5).any();
    half.value.truncate(half.value.len() - 3);
    plane.push_resources("2", vec![daily("a", 2).any(), half]);
    let nack = plane.wait_for_nack(0);
    assert!(nack.rejection().is_some_and(|error| error.contains("not a RateLimitConfig")), "{nack:?}");
    assert_eq!(statuses(&server, "a", "ann", 3), [200, 200, 429]);
    assert_eq!(statuses(&server, "b", "ann", 2), [200, 429]);
    let address = plane.address();
    drop(plane);

    // Half a frame, again and again.
    let plane = ControlPlane::start_with(Some(address), None);
    plane.push_half_messages();
    poll::until_true("several attempts", PATIENCE, || plane.streams() >= 3);
    assert_eq!(statuses(&server, "b", "bob", 2), [200, 429]);
    drop(plane);
    let plane = ControlPlane::start_with(Some(address), None);
    plane.push("1", &[daily("b", 2)]);
    plane.wait_for_ack("1");
    assert_eq!(statuses(&server, "b", "carl", 3), [200, 200, 429]);
}

#[test]
fn the_first_configuration_is_waited_for_if_the_variable_says_so() {
    let plane = ControlPlane::start();
    let mut command = command(&plane, &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "false")]);
    command.env("SLUICEGATE_LOG_FORMAT", "text");
    let server = std::thread::scope(|scope| {
        let starting = scope.spawn(|| Server::start_command(command));
        // The server asks, and does not serve yet.
        plane.wait_for("the first request", |all| all.first().cloned());
        assert!(!starting.is_finished());
        // A configuration without any good domain is none.
        plane.push("0", &[bad("b")]);
        plane.wait_for_nack(0);
        assert!(!starting.is_finished());
        // One with a good domain is, also beside the same error.
        plane.push("1", &[daily("a", 1), bad("b")]);
        starting.join().expect("ready")
    });
    assert!(server.lines_to_ready().join("\n").contains("waiting for the first configuration"));
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 429]);
}

#[test]
fn rules_of_a_file_apply_beside_the_control_plane() {
    let plane = ControlPlane::start();
    plane.push("1", &[daily("a", 1)]);
    let own = "rules: [{ name: own, match: { resource: r }, limits: [{ algorithm: fixed_window, limit: 1, window: 1d }] }]";
    let file = crate::server::ConfigFile::new("xds-file", own);
    let mut command = command(&plane, &[]);
    command.args(["--config", file.path()]);
    let server = Server::start_command(command);
    plane.wait_for_ack("1");
    let check = || post(server.address("api"), "/v1/check", r#"{"resource":"r","identifier":"ann"}"#).status;
    assert_eq!((check(), check()), (200, 429));
    assert_eq!(statuses(&server, "a", "ann", 2), [200, 429]);

    // A reload of the file keeps the limits of the control plane.
    std::fs::write(file.path(), own.replace("limit: 1", "limit: 2")).expect("written");
    let reloaded = post(server.address("admin"), "/admin/v1/reload", "");
    assert!(matches!(reloaded.status, 200 | 403), "{reloaded:?}");
    poll::until_true("the reload", PATIENCE, || check() == 200);
    assert_eq!(statuses(&server, "a", "ann", 1), [429]);

    // Rules of one name do not go together: the file is refused.
    std::fs::write(file.path(), own.replace("name: own", "name: a.user")).expect("written");
    let status = poll::until("the refusal", PATIENCE, || {
        Some(admin(&server, "/admin/v1/reload").json()).filter(|status| status["successful"] == false)
    });
    assert!(status["problems"][0].as_str().is_some_and(|text| text.contains("two rules are called")), "{status}");
    assert_eq!(statuses(&server, "a", "ann", 1), [429]);
}
