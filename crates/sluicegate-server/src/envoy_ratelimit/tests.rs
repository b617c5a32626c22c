//! The effect of the variables of `envoyproxy/ratelimit`, and the directories that are valid.

use std::fs;

use sluicegate::rules::RuleSet;
use sluicegate::rules::envoy::EnvoyOptions;
use tempfile::TempDir;

use super::*;
use crate::config::envoy_headers::EnvoyHeaders;
use crate::config::listeners::ClientAuthorities;
use crate::config::share::Share;
use crate::settings::{self, FileSettings, SettingValues};

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn chosen(variables: &[(&str, &str)]) -> Result<EnvoyRatelimit, String> {
    let chosen = EnvoyRatelimit::at(Some(Path::new("rules")), &environment(variables));
    Ok(chosen.map_err(|error| error.to_string())?.expect("a directory is given"))
}

/// The settings of an empty configuration with these variables.
fn completed(variables: &[(&str, &str)]) -> Result<Config, String> {
    let mut config = Config::without_file().expect("part of the program");
    chosen(variables)?.complete(&mut config);
    Ok(config)
}

fn store(variables: &[(&str, &str)]) -> Result<Option<String>, String> {
    completed(variables).map(|config| config.settings.values.text(&STORE).map(str::to_owned))
}

fn directory(files: &[(&str, &str)]) -> (TempDir, Directory) {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let directory = Directory { path: folder.path().to_owned(), options: EnvoyOptions::default() };
    (folder, directory)
}

fn limit(domain: &str) -> String {
    format!("domain: {domain}\ndescriptors: [{{ key: k, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n")
}

/// The message without the directory's own path.
fn refused(directory: &Directory) -> String {
    let error = directory.load(RuleSet::default()).expect_err("not usable").to_string();
    error.replace(&directory.path.display().to_string(), "DIR")
}

#[test]
fn the_flag_wins_over_our_variable_over_theirs_and_without_any_nothing_is_theirs() {
    let path = |flag: Option<&str>, variables: &[(&str, &str)]| {
        let chosen = EnvoyRatelimit::at(flag.map(Path::new), &environment(variables)).expect("usable");
        chosen.map(|envoy| envoy.directory().expect("a directory").path.display().to_string())
    };
    let ours = (ENVOY_RATELIMIT.variable, "ours");
    let root = ("RUNTIME_ROOT", "/data");
    assert_eq!(path(Some("flag"), &[ours, root]).as_deref(), Some("flag"));
    assert_eq!(path(None, &[ours, root]).as_deref(), Some("ours"));
    assert_eq!(path(None, &[root]).as_deref(), Some("/data/config"));
    assert_eq!(
        path(None, &[root, ("RUNTIME_SUBDIRECTORY", "ratelimit")]).as_deref(),
        Some("/data/ratelimit/config")
    );
    assert_eq!(path(None, &[root, ("RUNTIME_APPDIRECTORY", "rules")]).as_deref(), Some("/data/rules"));
    // Without a source, errors in the variables are ignored.
    assert_eq!(path(None, &[("PORT", "x"), ("CONFIG_TYPE", "FILE"), (ENVOY_RATELIMIT.variable, "")]), None);
}

/// The control plane that the arguments and variables name.
fn control_plane(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
    let chosen = EnvoyRatelimit::named(None, flag, &environment(variables)).map_err(|error| error.to_string())?;
    Ok(chosen.and_then(|envoy| Some(envoy.xds()?.server.clone())))
}

#[test]
fn a_control_plane_is_named_by_flag_or_variables_and_wins_over_the_directory_of_theirs() {
    let theirs =
        [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_URL", "theirs:1"), ("RUNTIME_ROOT", "/data")];
    let ours = (ENVOY_XDS.variable, "ours:2");
    let server = |server: &str| Ok(Some(server.to_owned()));
    assert_eq!(control_plane(None, &theirs), server("theirs:1"));
    assert_eq!(control_plane(None, &[&theirs[..], &[ours]].concat()), server("ours:2"));
    assert_eq!(control_plane(Some("flag:3"), &[&theirs[..], &[ours]].concat()), server("flag:3"));
    assert_eq!(control_plane(Some("flag:3"), &[(ENVOY_RATELIMIT.variable, "directory")]), server("flag:3"));
    assert_eq!(control_plane(None, &[("CONFIG_GRPC_XDS_SERVER_URL", "theirs:1")]), Ok(None));
    let both = control_plane(None, &[ours, (ENVOY_RATELIMIT.variable, "directory")]).expect_err("ambiguous");
    assert!(both.contains("a control plane and a directory are both set"), "{both}");
    let both = chosen(&theirs).expect_err("ambiguous");
    assert!(both.starts_with("CONFIG_TYPE of envoyproxy/ratelimit: a control plane and a directory"), "{both}");
}

/// The variables that Envoy Gateway always sets, and those of its defaults.
const ENVOY_GATEWAY: [(&str, &str); 24] = [
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "redis.default.svc:6379"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", ":19001"),
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
];

#[test]
fn the_environment_of_envoy_gateway_sets_everything_and_all_but_the_mapping_has_a_meaning() {
    let envoy = EnvoyRatelimit::named(None, None, &environment(&ENVOY_GATEWAY)).expect("usable").expect("chosen");
    let mut config = Config::without_file().expect("part of the program");
    envoy.complete(&mut config);
    let settings = &config.settings.values;
    let listeners = [&API, &GATEWAY, &ADMIN].map(|setting| settings.text(setting));
    assert_eq!(listeners, [Some("0.0.0.0:8081"), Some("0.0.0.0:8080"), Some("127.0.0.1:6070")]);
    assert_eq!(settings.text(&STORE), Some("redis://redis.default.svc:6379"));
    let tls = config.listeners.api.tls.expect("TLS");
    assert_eq!((tls.certificate, tls.key), ("/certs/tls.crt".into(), "/certs/tls.key".into()));
    let clients = tls.clients.expect("authorities");
    assert_eq!((clients.file, clients.is_required), ("/certs/ca.crt".into(), false));
    let prometheus = config.listeners.prometheus.expect("metrics");
    assert_eq!(prometheus.address, settings::Listen::At(([0, 0, 0, 0], 19_001).into()));
    assert_eq!(prometheus.path, "/metrics");
    assert!(envoy.xds().is_some_and(|xds| xds.tls.is_some() && xds.node_id == "envoy-ratelimit"));
    assert_eq!(envoy.variables.unused, ["PROMETHEUS_MAPPER_YAML"]);
    // Sluicegate's own names of the source leave the addresses alone.
    let own = EnvoyRatelimit::named(None, Some("plane:1"), &environment(&[])).expect("usable").expect("chosen");
    let mut config = Config::without_file().expect("part of the program");
    own.complete(&mut config);
    assert_eq!(config.settings, FileSettings::default());
}

#[test]
fn client_certificates_are_required_by_their_variable_and_verified_by_that_of_envoy_gateway() {
    let tls = |variables: &[(&str, &str)]| {
        let files = [("GRPC_SERVER_USE_TLS", "true"), ("GRPC_SERVER_TLS_CERT", "c"), ("GRPC_SERVER_TLS_KEY", "k")];
        completed(&[&files, variables].concat()).map(|config| config.listeners.api.tls.expect("TLS").clients)
    };
    let authorities = |file: &str, is_required| Some(ClientAuthorities { file: file.into(), is_required });
    let (theirs, gateways) = (("GRPC_CLIENT_TLS_CACERT", "a"), ("GRPC_SERVER_TLS_CA_CERT", "b"));
    assert_eq!(tls(&[]), Ok(None));
    assert_eq!(tls(&[gateways]), Ok(authorities("b", false)));
    assert_eq!(tls(&[theirs, gateways]), Ok(authorities("a", true)));
    assert_eq!(completed(&[theirs]).map(|config| config.listeners.api.tls), Ok(None));
}

#[test]
fn traces_are_those_of_the_variables_if_they_are_sent_over_grpc() {
    let enabled = ("TRACING_ENABLED", "true");
    let grpc = ("TRACING_EXPORTER_PROTOCOL", "grpc");
    let traces = |variables: &[(&str, &str)]| completed(variables).expect("usable").traces;
    assert!(traces(&[grpc]).is_none());
    // They are off, so that the endpoint of Envoy Gateway, which is one for HTTP, does not turn them on.
    let is_off = |variables: &[(&str, &str)]| traces(variables).is_some_and(|traces| traces.is_off);
    assert!(is_off(&[enabled]) && is_off(&[("TRACING_ENABLED", "false"), grpc]));
    assert_eq!(chosen(&[enabled]).expect("usable").variables.unused, ["TRACING_ENABLED"]);
    let usual = traces(&[enabled, grpc]).expect("on");
    assert_eq!((usual.service_name.as_deref(), usual.sample), (Some("RateLimit"), Some(Share::ALL)));
    let all = [
        enabled,
        grpc,
        ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
        ("TRACING_SERVICE_NAMESPACE", "gateways"),
        ("TRACING_SERVICE_INSTANCE_ID", "pod-1"),
        ("TRACING_SAMPLING_RATE", "0.5"),
    ];
    let set = traces(&all).expect("on");
    assert_eq!((set.service_name.as_deref(), set.sample), (Some("envoy-ratelimit"), Share::of_ratio(0.5)));
    let attributes = [("service.namespace", "gateways"), ("service.instance.id", "pod-1")];
    assert_eq!(set.attributes, attributes.map(|(key, value)| (key, value.to_owned())));
}

#[test]
fn ports_become_addresses_where_ours_are_not_given() {
    let variables = [("PORT", "7080"), ("GRPC_PORT", "7081"), ("DEBUG_PORT", "7070")];
    let settings = completed(&variables).expect("usable").settings;
    assert_eq!(settings.values.text(&GATEWAY), Some("0.0.0.0:7080"));
    assert_eq!(settings.values.text(&API), Some("0.0.0.0:7081"));
    assert_eq!(settings.values.text(&ADMIN), Some("127.0.0.1:7070"));
    let merged = settings::merge(&Flags::default(), &Env::default(), &settings).expect("usable");
    assert_eq!(format!("{:?}", merged.api), "At(0.0.0.0:7081)");

    let given = Flags::default().with(&API, Some("127.0.0.1:1"));
    let merged = settings::merge(&given, &Env::default(), &settings).expect("usable");
    assert_eq!(format!("{:?}", merged.api), "At(127.0.0.1:1)");

    let hosts = [("GRPC_HOST", "::1"), ("HOST", "127.0.0.2"), ("DEBUG_HOST", "127.0.0.3")];
    let values = completed(&hosts).expect("usable").settings.values;
    assert_eq!((values.text(&API), values.text(&GATEWAY)), (Some("[::1]:8081"), Some("127.0.0.2:8080")));
    assert_eq!(values.text(&ADMIN), Some("127.0.0.3:6070"));
    assert_eq!(completed(&[]).expect("usable").settings, FileSettings::default());
}

#[test]
fn the_file_wins_over_the_variables() {
    let mut config = Config::without_file().expect("part of the program");
    let values = SettingValues::default().with(&API, Some("127.0.0.1:1")).with(&STORE, Some("memory"));
    config.settings.values = values;
    config.redis.ca_file = Some("own.pem".into());
    let theirs = [("GRPC_PORT", "7081"), ("REDIS_URL", "redis:6379"), ("REDIS_TLS_CACERT", "theirs.pem")];
    chosen(&theirs).expect("usable").complete(&mut config);
    assert_eq!(config.settings.values.text(&API), Some("127.0.0.1:1"));
    assert_eq!(config.settings.values.text(&STORE), Some("memory"));
    assert_eq!(config.redis.ca_file, Some("own.pem".into()));
}

#[test]
fn redis_is_where_the_variables_say() {
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")], "redis://redis:6379"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_TYPE", "single"), ("REDIS_TLS", "true")], "rediss://redis:6379"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "p@ss/word")], "redis://:p%40ss%2Fword@redis:6379"),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "ann:a:b")], "redis://ann:a%3Ab@redis:6379"),
        (&[("REDIS_URL", "redis://redis:6379/2"), ("REDIS_AUTH", "x")], "redis://:x@redis:6379/2"),
        (&[("REDIS_URL", "redis://:y@redis:6379"), ("REDIS_AUTH", "x")], "redis://:y@redis:6379"),
        (&[("REDIS_URL", "a:7000,b:7001"), ("REDIS_TYPE", "CLUSTER")], "redis+cluster://a:7000,b:7001"),
        (
            &[("REDIS_URL", "mymaster,a:26379,b:26379"), ("REDIS_TYPE", "SENTINEL"), ("REDIS_AUTH", "x")],
            "redis+sentinel://:x@a:26379,b:26379/mymaster",
        ),
    ];
    for (variables, url) in cases {
        assert_eq!(store(variables), Ok(Some(url.to_owned())), "{variables:?}");
    }
    assert_eq!(store(&[("REDIS_TYPE", "CLUSTER")]), Ok(None));
    let files =
        [("REDIS_TLS_CACERT", "ca.pem"), ("REDIS_TLS_CLIENT_CERT", "c.pem"), ("REDIS_TLS_CLIENT_KEY", "k.pem")];
    let redis = completed(&files).expect("usable").redis;
    assert_eq!(
        (redis.ca_file, redis.client_files),
        (Some("ca.pem".into()), Some(("c.pem".into(), "k.pem".into())))
    );
}

#[test]
fn unsupported_variables_are_errors_with_a_remedy_and_without_the_value() {
    let cases: [(&[(&str, &str)], &str); 14] = [
        (&[("PORT", "http")], "PORT of envoyproxy/ratelimit: use a port from 0 to 65535, for example 8080"),
        (
            &[("GRPC_PORT", "70000")],
            "GRPC_PORT of envoyproxy/ratelimit: use a port from 0 to 65535, for example 8081",
        ),
        (&[("MERGE_DOMAIN_CONFIG", "yes")], "MERGE_DOMAIN_CONFIG of envoyproxy/ratelimit: use true or false"),
        (&[("CONFIG_TYPE", "CONSUL")], "CONFIG_TYPE of envoyproxy/ratelimit: use FILE or GRPC_XDS_SOTW"),
        (
            &[("BACKEND_TYPE", "memcache")],
            "BACKEND_TYPE of envoyproxy/ratelimit: only redis is supported; set it so, or unset it",
        ),
        (
            &[("GRPC_UDS", "/run/canary.sock")],
            "GRPC_UDS of envoyproxy/ratelimit: a Unix socket is not supported; unset it, and set GRPC_PORT",
        ),
        (
            &[("GRPC_SERVER_USE_TLS", "true")],
            "GRPC_SERVER_TLS_CERT of envoyproxy/ratelimit: set it, and GRPC_SERVER_TLS_KEY: GRPC_SERVER_USE_TLS needs both",
        ),
        (
            &[("GRPC_CLIENT_TLS_SAN", "canary")],
            "GRPC_CLIENT_TLS_SAN of envoyproxy/ratelimit: the names in client certificates are not checked; unset it, and \
             give the clients an authority of their own",
        ),
        (
            &[("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", ":metrics")],
            "PROMETHEUS_ADDR of envoyproxy/ratelimit: `:metrics` has no port from 0 to 65535; give for example :9090",
        ),
        (
            &[("REDIS_URL", "/run/canary.sock")],
            "REDIS_URL of envoyproxy/ratelimit: Redis over a Unix socket is not supported; give host:port, and \
             REDIS_SOCKET_TYPE=tcp",
        ),
        (
            &[("REDIS_URL", "r:1"), ("REDIS_TYPE", "RING")],
            "REDIS_TYPE of envoyproxy/ratelimit: use SINGLE, SENTINEL or CLUSTER",
        ),
        (
            &[("REDIS_URL", "a:26379"), ("REDIS_TYPE", "SENTINEL")],
            "REDIS_URL of envoyproxy/ratelimit: give the name of the service first, for example \
             mymaster,host1:26379,host2:26379",
        ),
        (
            &[("REDIS_TLS_CLIENT_CERT", "c.pem")],
            "REDIS_TLS_CLIENT_KEY of envoyproxy/ratelimit: set it too: the certificate needs it",
        ),
        (
            &[("REDIS_URL", "redis:port"), ("REDIS_AUTH", "canary")],
            "REDIS_URL of envoyproxy/ratelimit: the port of `redis` is not a number from 1 to 65535",
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(chosen(variables).map(|_| ()), Err(expected.to_owned()), "{variables:?}");
    }
    // A value of false disables the variable.
    assert!(
        chosen(&[("CONFIG_TYPE", "file"), ("GRPC_SERVER_USE_TLS", "false"), ("BACKEND_TYPE", "redis")]).is_ok()
    );
}

#[test]
fn modes_are_taken_over_and_the_rest_is_named() {
    let variables = [
        ("SHADOW_MODE", "true"),
        ("QUOTA_MODE", "1"),
        ("MERGE_DOMAIN_CONFIG", "T"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
        ("REDIS_PERSECOND_URL", "r:1"),
        ("USE_STATSD", ""),
        ("HOME", "/root"),
    ];
    let envoy = chosen(&variables).expect("usable");
    let all = EnvoyOptions { merge_domains: true, is_shadow: true, is_quota: true };
    assert_eq!(envoy.directory().expect("a directory").options, all);
    assert_eq!(envoy.variables.unused, ["LOCAL_CACHE_SIZE_IN_BYTES", "REDIS_PERSECOND_URL"]);
    assert!(!format!("{:?}", chosen(&[("REDIS_URL", "r:1"), ("REDIS_AUTH", "canary")])).contains("canary"));
}

#[test]
fn header_fields_are_off_by_default_and_have_configurable_names() {
    let headers = |variables: &[(&str, &str)]| completed(variables).map(|config| config.envoy_headers);
    assert_eq!(headers(&[("LIMIT_LIMIT_HEADER", "x-limit")]), Ok(EnvoyHeaders::Nothing));
    let enabled = ("LIMIT_RESPONSE_HEADERS_ENABLED", "true");
    let named = headers(&[enabled, ("LIMIT_LIMIT_HEADER", "X-Limit"), ("LIMIT_RESET_HEADER", "X-Reset")]);
    let Ok(EnvoyHeaders::Named(names)) = named else { panic!("{named:?}") };
    let shown = format!("{names:?}");
    assert!(
        ["\"x-limit\"", "\"ratelimit-remaining\"", "\"x-reset\""].iter().all(|name| shown.contains(name)),
        "{shown}"
    );
    assert_eq!(
        headers(&[enabled, ("LIMIT_LIMIT_HEADER", "a b")]),
        Err("LIMIT_LIMIT_HEADER of envoyproxy/ratelimit: use a name that a header field can have, for example \
             RateLimit-Limit"
            .to_owned())
    );
    assert_eq!(Config::without_file().expect("part of the program").envoy_headers, EnvoyHeaders::AsElsewhere);
}

#[test]
fn every_yaml_file_directly_in_the_directory_counts() {
    let (a, b) = (limit("a"), limit("b"));
    let files =
        [("b.yml", b.as_str()), ("a.yaml", &a), ("README.md", "no: yaml"), (".hidden.yaml", ":"), ("c.json", ":")];
    let (folder, directory) = directory(&files);
    fs::create_dir(folder.path().join("d.yaml")).expect("a directory");
    fs::write(folder.path().join("d.yaml/e.yaml"), ":").expect("a file");
    let rules = directory.load(RuleSet::default()).expect("usable");
    assert_eq!(rules.envoy().expect("there").domains(), ["a", "b"]);
    let names: Vec<&str> = rules.rules().iter().map(|rule| rule.space.name()).collect();
    assert_eq!(names, ["a.k", "b.k"]);
}

#[test]
fn an_empty_directory_is_an_error_with_a_remedy() {
    let (_folder, empty) = directory(&[("README.md", "")]);
    assert_eq!(
        refused(&empty),
        "the directory DIR holds no configuration; put at least one *.yaml or *.yml file directly in it"
    );
    let missing = Directory { path: empty.path.join("missing"), ..empty.clone() };
    let message = refused(&missing);
    assert!(message.starts_with("cannot read the directory DIR: "), "{message}");
    assert!(message.ends_with("; give the one that holds the files of envoyproxy/ratelimit"), "{message}");
}

#[test]
fn any_bad_file_is_named_with_line_and_column() {
    let (_folder, bad) = directory(&[("a.yaml", &limit("a")), ("b.yaml", "domain: b\ndescriptor: []\n")]);
    assert_eq!(
        refused(&bad),
        "the configuration of envoyproxy/ratelimit has mistakes:\nDIR/b.yaml:2:1: descriptor: unknown key: did you mean \
         descriptors? the keys here are: domain, descriptors"
    );
}
