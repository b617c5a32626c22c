//! The programs, where they are, and how each is run as one process out of one folder.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Which proxy to run, and the files that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontProgram {
    /// Debian's nginx. `servers.conf`: what stands in the block `http`.
    Nginx,
    /// Debian's HAProxy. `haproxy.cfg`, and whatever that file loads.
    Haproxy,
    /// `site.caddyfile`: everything but the global options.
    Caddy,
    /// `envoy.yaml`, all of it.
    Envoy,
    /// `traefik.yml`, the static configuration, and whatever that file names.
    Traefik,
}

/// nginx as one process that writes nowhere else.
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

/// Caddy without its administration, certificates and saved state.
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
    /// The path of the program; panics with the remedy when there is none.
    pub(super) fn path(self) -> PathBuf {
        let name = self.name();
        self.on_search_path().or_else(|| self.among_tools()).unwrap_or_else(|| {
            panic!("{name} is not installed: `cargo xtask test --only proxies` installs it");
        })
    }

    /// What is written beside the files of a test.
    pub(super) fn own_files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Nginx => &[("nginx.conf", NGINX)],
            Self::Caddy => &[("Caddyfile", CADDYFILE)],
            Self::Envoy | Self::Haproxy | Self::Traefik => &[],
        }
    }

    /// All in the foreground.
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

    /// Debian puts servers where the search path of other users than root does not lead. The others come with a
    /// version of their own.
    fn on_search_path(self) -> Option<PathBuf> {
        if matches!(self, Self::Caddy | Self::Traefik | Self::Envoy) {
            return None;
        }
        let folders = variable("PATH")?;
        let folders = env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join(self.name())).find(|path| path.is_file())
    }

    /// The test program lies somewhere under the target folder, and the tools lie directly in it.
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
