//! The locations of the server programs.
//!
//! `cargo xtask test` passes them in environment variables. Otherwise the search path is tried, and then the folder in
//! which that task installed Valkey, so that a plain `cargo test` works too. A missing program fails the test, because
//! a skipped test proves nothing.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The server program to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `redis-server`.
    Redis,
    /// `valkey-server`, the fork that continues under the old licence.
    Valkey,
}

impl Program {
    /// The path of the program. Panics with the remedy if it is not installed.
    pub fn path(self) -> PathBuf {
        if let Some(named) = variable(self.variable()) {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "{} names {}, which is no file", self.variable(), named.display());
            return named;
        }
        self.on_search_path().or_else(|| self.among_tools()).unwrap_or_else(|| {
            panic!(
                "{} is not installed: `cargo xtask test --only redis` installs it, or set {} to its path",
                self.name(),
                self.variable()
            )
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "SLUICEGATE_TEST_REDIS_SERVER",
            Self::Valkey => "SLUICEGATE_TEST_VALKEY_SERVER",
        }
    }

    fn on_search_path(self) -> Option<PathBuf> {
        let folders = variable("PATH")?;
        env::split_paths(&folders).map(|folder| folder.join(self.name())).find(|path| path.is_file())
    }

    /// The test binary is somewhere below the target folder; the tools are directly in it.
    fn among_tools(self) -> Option<PathBuf> {
        let test = env::current_exe().ok()?;
        let installed = Path::new("tools/valkey/bin").join(self.name());
        test.ancestors().map(|folder| folder.join(&installed)).find(|path| path.is_file())
    }
}

#[expect(clippy::disallowed_methods, reason = "the test runner says in the environment where its programs are")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}
