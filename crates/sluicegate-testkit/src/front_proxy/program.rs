//! The proxy programs, their locations, and how to run each as one process in one folder.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The proxy to run, and the files that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontProgram {
    /// Debian's nginx. `servers.conf` is the content of the `http` block.
    Nginx,
    /// Debian's HAProxy. `haproxy.cfg`, and the files that it loads.
    Haproxy,
    /// `site.caddyfile`: the configuration without the global options.
    Caddy,
    /// `envoy.yaml`: the whole configuration.
    Envoy,
    /// `traefik.yml`, the static configuration, and the files that it names.
    Traefik,
}

/// nginx as one process that writes only to its folder.
const NGINX: &str = "\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include servers.conf;
}
";

/// Caddy without its admin endpoint, certificates and saved state.
const CADDYFILE: &str = "\
{
\tadmin off
\tauto_https off
\tpersist_config off
\tstorage file_system storage
}
import site.caddyfile
";

impl FrontProgram {
    /// The path of the program. Panics with the remedy if it is not installed.
    pub(super) fn path(self) -> PathBuf {
        let name = self.name();
        self.on_search_path().or_else(|| self.among_tools()).unwrap_or_else(|| {
            panic!("{name} is not installed: `cargo xtask test --only proxies` installs it");
        })
    }

    /// The files that this module adds to those of a test.
    pub(super) fn own_files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Nginx => &[("nginx.conf", NGINX)],
            Self::Caddy => &[("Caddyfile", CADDYFILE)],
            Self::Envoy | Self::Haproxy | Self::Traefik => &[],
        }
    }

    /// The arguments that run the proxy in the foreground.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["-p", ".", "-e", "stderr", "-c", "nginx.conf"],
            Self::Haproxy => &["-db", "-f", "haproxy.cfg"],
            Self::Caddy => &["run", "--config", "Caddyfile", "--adapter", "caddyfile"],
            Self::Traefik => &["--configFile=traefik.yml"],
            Self::Envoy => &["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "warning"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
            Self::Envoy => "envoy",
        }
    }

    /// Debian installs servers in folders that are on the search path of root only. The other proxies come with a
    /// pinned version of their own.
    fn on_search_path(self) -> Option<PathBuf> {
        if matches!(self, Self::Caddy | Self::Traefik | Self::Envoy) {
            return None;
        }
        let folders = variable("PATH")?;
        let folders = env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join(self.name())).find(|path| path.is_file())
    }

    /// The test binary is somewhere below the target folder; the tools are directly in it.
    fn among_tools(self) -> Option<PathBuf> {
        let test = env::current_exe().ok()?;
        let installed = Path::new("tools").join(self.name()).join("bin").join(self.name());
        test.ancestors().map(|folder| folder.join(&installed)).find(|path| path.is_file())
    }
}

#[expect(clippy::disallowed_methods, reason = "programs are found as a shell finds them")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}
