//! The Helm chart, rendered by Helm's own engine. Kubernetes accepts the objects, and the real binary accepts its
//! arguments, serves the ports and reads the configuration.

use super::*;
use crate::client::{Connection, send_with};

/// The Python with Helm that `cargo xtask test` has installed, beside the binary under test.
fn python() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_BIN_EXE_sluicegate"));
    target.ancestors().nth(2).expect("target/debug/sluicegate").join("tools/helm/bin/python")
}

/// Renders the chart: the objects, or the errors of Helm or Kubernetes.
fn render(values: &Value) -> Result<Value, String> {
    render_text(&values.to_string())
}

/// The same with values as YAML or JSON.
fn render_text(values: &str) -> Result<Value, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/deploy/helm.py");
    let output = Command::new(python())
        .arg(script)
        .arg(deploy("helm/sluicegate"))
        .arg(values)
        .output()
        .expect("Helm is installed; `cargo xtask test --only helm` does that");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// The default values, many options together, and alternatives to these options.
fn variants() -> [Value; 3] {
    [
        json!({}),
        json!({
            "replicas": 3,
            "store": {"existingSecret": {"name": "redis", "key": "url"}},
            "database": {"existingSecret": {"name": "postgres"}},
            "admin": {"existingSecret": {"name": "mine", "key": "word"}},
            "listeners": {"resp": {"enabled": true}, "gateway": {"enabled": false}},
            "serviceMonitor": {"enabled": true, "labels": {"team": "edge"}},
            "restartOnChange": true,
            "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"e": "f"},
            "env": [{"name": "G", "value": "h"}], "envFrom": [{"secretRef": {"name": "i"}}],
            "imagePullSecrets": [{"name": "j"}],
            "volumes": [{"name": "k", "emptyDir": {}}], "volumeMounts": [{"name": "k", "mountPath": "/k"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        }),
        json!({
            "autoscaling": {"enabled": true},
            "admin": {"token": "chosen-token"},
            // Large numbers must not be rendered as floating point.
            "config": {"tiers": ["pro"], "rules": [{"name": "large", "limits": [{"algorithm": "fixed_window", "limit": 12_345_678, "window": "1h"}]}]},
        }),
    ]
}

/// The object of this kind.
fn object<'r>(rendered: &'r Value, kind: &str) -> &'r Value {
    let objects = rendered["objects"].as_array().expect("a list");
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {rendered:#}"))
}

fn kinds(rendered: &Value) -> BTreeSet<&str> {
    rendered["objects"].as_array().expect("a list").iter().filter_map(|object| object["kind"].as_str()).collect()
}

fn container(rendered: &Value) -> &Value {
    &object(rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn rendered_charts_are_valid_and_contain_only_requested_objects() {
    let always = ["ConfigMap", "Deployment", "Service"];
    for (values, more) in variants().iter().zip([
        &["Secret"][..],
        &["PodDisruptionBudget", "ServiceMonitor"],
        &["HorizontalPodAutoscaler", "PodDisruptionBudget", "Secret"],
    ]) {
        let rendered = render(values).expect("no objection");
        assert_eq!(rendered["lint"]["errors"], json!([]), "{values}");
        assert_eq!(kinds(&rendered), always.iter().chain(more).copied().collect(), "{values}");
        let is_warned = rendered["notes"].as_str().expect("text").contains("each counts for itself");
        assert_eq!(is_warned, values["autoscaling"]["enabled"] == true, "{}", rendered["notes"]);
        assert!(rendered["notes"].as_str().expect("text").contains("keep port 8082 out of the sidecar's hands"));
        assert_eq!(container(&rendered)["image"], json!(concat!("sluicegate:", env!("CARGO_PKG_VERSION"))));
    }
}

#[test]
fn a_value_that_does_not_exist_or_cannot_be_is_refused() {
    for (values, named) in [
        (json!({"replica": 2}), "replica"),
        (json!({"replicas": "two"}), "replicas"),
        (json!({"store": {"url": "mysql://h"}}), "url"),
        (json!({"listeners": {"grpc": {"enabled": true, "port": 1}}}), "grpc"),
        (json!({"adminPort": 0}), "adminPort"),
        (json!({"terminationGracePeriodSeconds": 5}), "terminationGracePeriodSeconds"),
    ] {
        let refused = render(&values).expect_err("a mistake");
        assert!(refused.contains("HelmValuesError") && refused.contains(named), "{values}: {refused}");
    }
}

#[test]
fn an_ignored_or_exposed_store_is_an_error() {
    for (values, remedy) in [
        (json!({"config": {"store": "redis://redis:6379"}}), "set store.url"),
        (json!({"store": {"url": "redis://:canary@redis:6379"}}), "name that by store.existingSecret"),
    ] {
        let refused = render(&values).expect_err("a mistake");
        assert!(refused.contains(remedy) && !refused.contains("canary"), "{values}: {refused}");
    }
    let rendered = render(&json!({"store": {"url": "rediss+cluster://a:1,b:2"}})).expect("no objection");
    let variables = container(&rendered)["env"].as_array().expect("variables").clone();
    assert!(variables.contains(&json!({"name": "SLUICEGATE_STORE", "value": "rediss+cluster://a:1,b:2"})));
}

#[test]
fn the_binary_accepts_the_rendered_file_and_responds_to_probes() {
    for values in variants() {
        let rendered = render(&values).expect("no objection");
        let container = container(&rendered);
        let file = object(&rendered, "ConfigMap")["data"]["sluicegate.yaml"].as_str().expect("a file");
        let config = ConfigFile::new("deploy-helm", file);
        passes(&mut sluicegate(&["validate", config.path()]));
        let mount = &container["volumeMounts"][0]["mountPath"];
        let path = format!("{}/sluicegate.yaml", mount.as_str().expect("a path"));
        // The arguments of the pod, but with the path of the file on this machine and with free ports.
        let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).expect("words");
        let here = |word: &String| match word {
            word if *word == path => config.path().to_owned(),
            word if word.starts_with("0.0.0.0:") => "127.0.0.1:0".to_owned(),
            word => word.clone(),
        };
        let here: Vec<String> = arguments.iter().map(here).collect();
        assert!(here.contains(&config.path().to_owned()), "{arguments:?}");
        let mut command = sluicegate(&here.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("SLUICEGATE_ADMIN_TOKEN", "token-of-the-chart").env("SLUICEGATE_STORE", "memory");
        let server = Server::start_command(command);
        // The ports of the pod and the listeners of the server have the same names.
        let ports = container["ports"].as_array().expect("ports");
        for port in ports {
            let name = port["name"].as_str().expect("a name");
            let option = arguments.iter().position(|word| *word == format!("--{name}")).expect("an option");
            assert_eq!(arguments[option + 1], format!("0.0.0.0:{}", port["containerPort"]), "{name}");
        }
        let names: BTreeSet<&str> = ports.iter().filter_map(|port| port["name"].as_str()).collect();
        assert_eq!(server.listeners().into_iter().collect::<BTreeSet<_>>(), names);
        let service = object(&rendered, "Service")["spec"]["ports"].as_array().expect("ports");
        assert_eq!(service.iter().filter_map(|port| port["targetPort"].as_str()).collect::<BTreeSet<_>>(), names);
        // Probes send no token and need none.
        for probe in ["livenessProbe", "readinessProbe"] {
            let get = &container[probe]["httpGet"];
            let port = get["port"].as_str().expect("a name");
            let answer = send(server.address(port), "GET", get["path"].as_str().expect("a path"));
            assert_eq!(answer.status, 200, "{probe}: {answer:?}");
        }
        if kinds(&rendered).contains("ServiceMonitor") {
            let endpoint = &object(&rendered, "ServiceMonitor")["spec"]["endpoints"][0];
            let (port, path) =
                (endpoint["port"].as_str().expect("text"), endpoint["path"].as_str().expect("text"));
            let answer = send_with(server.address(port), "GET", path, "authorization: Bearer token-of-the-chart");
            assert!(answer.status == 200 && answer.body.contains("sluicegate_build_info"), "{answer:?}");
            let token = &container["env"][0]["valueFrom"]["secretKeyRef"];
            assert_eq!(*token, endpoint["authorization"]["credentials"]);
        }
    }
}

#[test]
fn prometheus_may_show_a_token_that_only_reads() {
    let secret = json!({"name": "prometheus", "key": "word"});
    let rendered = render(&json!({
        "config": {"admin": {"tokens": [{"name": "prometheus", "role": "read", "env": "READ_TOKEN"}]}, "rules": []},
        "env": [{"name": "READ_TOKEN", "valueFrom": {"secretKeyRef": secret}}],
        "serviceMonitor": {"enabled": true, "existingSecret": secret},
    }))
    .expect("no objection");
    let endpoint = &object(&rendered, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(endpoint["authorization"], json!({"type": "Bearer", "credentials": secret}));
    let variables = container(&rendered)["env"].as_array().expect("variables");
    assert!(variables.iter().any(|variable| variable["valueFrom"]["secretKeyRef"] == secret));
    let file = object(&rendered, "ConfigMap")["data"]["sluicegate.yaml"].as_str().expect("a file");
    let config = ConfigFile::new("deploy-helm-read", file);
    let mut command = sluicegate(&["--config", config.path(), "--store", "memory", "--admin", "127.0.0.1:0"]);
    command.env("SLUICEGATE_ADMIN_TOKEN", "all-of-it-is-allowed").env("READ_TOKEN", "reads-and-no-more");
    let server = Server::start_command(command);
    let status = |method, path| {
        // The host name has a dot, so the exemption for requests from this machine does not apply.
        let head = "host: limits.example\r\nconnection: close\r\nauthorization: Bearer reads-and-no-more";
        let mut connection = Connection::open(server.address("admin"));
        connection.send(format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n"));
        connection.answer().status
    };
    assert_eq!(status("GET", endpoint["path"].as_str().expect("a path")), 200);
    assert_eq!(status("POST", "/admin/v1/reload"), 403);
}

/// The preset of a control plane: its names and ports, and a server that waits for it.
#[test]
fn the_preset_of_envoy_ai_gateway_fills_its_empty_slot() {
    let rendered = render_text(&text("helm/presets/envoy-ai-gateway.yaml")).expect("no objection");
    assert_eq!(rendered["lint"]["errors"], json!([]));
    let service = object(&rendered, "Service");
    assert_eq!(service["metadata"]["name"], "envoy-ai-gateway-ratelimit");
    let ports = service["spec"]["ports"].as_array().expect("ports");
    assert!(ports.iter().any(|port| port["name"] == "api" && port["port"] == 8081), "{ports:?}");
    let container = container(&rendered);
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).expect("words");
    let at = arguments.iter().position(|word| word == "--envoy-xds").expect("the control plane");
    assert_eq!(arguments[at + 1], "ai-gateway-controller.envoy-ai-gateway-system:18002");
    let node = json!({"name": "CONFIG_GRPC_XDS_NODE_ID", "value": "envoy-ai-gateway-ratelimit"});
    assert!(container["env"].as_array().expect("variables").contains(&node));
    let rendered = render(&json!({"service": {"apiAppProtocol": "kubernetes.io/h2c"}})).expect("no objection");
    let ports = object(&rendered, "Service")["spec"]["ports"].as_array().expect("ports").clone();
    let named: Vec<_> = ports.iter().filter(|port| port.get("appProtocol").is_some()).collect();
    assert!(named.len() == 1 && named[0]["name"] == "api" && named[0]["appProtocol"] == "kubernetes.io/h2c");
    let refused = render(&json!({"envoyXds": {"server": "http://plane:1"}})).expect_err("a mistake");
    assert!(refused.contains("server"), "{refused}");
}

#[test]
fn the_pod_is_as_confined_as_the_unit_and_the_image() {
    let rendered = render(&json!({})).expect("no objection");
    let pod = &object(&rendered, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], json!(true));
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    let confined = &container(&rendered)["securityContext"];
    assert_eq!(
        *confined,
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    // Two releases with generated tokens have different tokens.
    let token = |rendered: &Value| object(rendered, "Secret")["data"]["token"].as_str().expect("text").to_owned();
    let other = render(&json!({})).expect("no objection");
    assert!(token(&rendered).len() >= 64 && token(&rendered) != token(&other));
}
