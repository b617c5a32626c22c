//! Generates the Rust code of the project's .proto files, and the descriptor that gRPC reflection serves.
//!
//! The argument is the root of the repository; output goes below it. A test compares the committed files with a new
//! generation. The program is independent of the content of the messages.

#![expect(clippy::print_stderr, reason = "a tool talks to the person who ran it")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Builder;

/// The folder of the .proto files.
const SOURCES: &str = "proto";
/// The protocols, each with code that depends on no other.
const PROTOCOLS: [Protocol; 2] = [
    Protocol {
        service: "ratelimit.proto",
        messages: "crates/sluicegate-server/src/grpc/messages.rs",
        head: "//! The messages of Envoy's rate limit protocol, as `cargo xtask proto` writes them.\n\n",
        description: Some("crates/sluicegate-server/src/grpc/descriptors.bin"),
        bytes: &[],
    },
    Protocol {
        service: "discovery.proto",
        messages: "crates/sluicegate-server/src/envoy_xds/messages.rs",
        head: "//! The messages of the xDS protocol, as `cargo xtask proto` writes them.\n\n",
        // The server is only a client of this protocol.
        description: None,
        bytes: &[".ratelimit.config.ratelimit.v3"],
    },
];

/// A protocol: its sources and the files that are generated from it.
struct Protocol {
    /// The file that imports all others.
    service: &'static str,
    /// The output file of the message code.
    messages: &'static str,
    /// The header of the generated code.
    head: &'static str,
    /// The output file of the descriptor, if the server offers reflection of this protocol.
    description: Option<&'static str>,
    /// The messages whose `bytes` share the memory of the message that they came in.
    bytes: &'static [&'static str],
}

/// An output file: a path below the root, and its content.
type Written = (&'static str, Vec<u8>);

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sluicegate-proto ROOT");
        return ExitCode::from(2);
    };
    match write(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the .proto files could not be compiled: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(root: &Path) -> Result<(), Box<dyn Error>> {
    for (path, content) in generate(root)? {
        fs::write(root.join(path), content)?;
    }
    Ok(())
}

fn generate(root: &Path) -> Result<Vec<Written>, Box<dyn Error>> {
    let mut written = Vec::new();
    for Protocol { service, messages, head, description, bytes } in PROTOCOLS {
        let described = protox::compile([service], [root.join(SOURCES)])?;
        let builder = tonic_prost_build::configure().build_client(false).build_server(false);
        let builder = bytes.iter().fold(builder, |builder, path| builder.bytes(path));
        let code = code(builder, &described)?;
        written.push((messages, format!("{head}{code}").into_bytes()));
        written.extend(description.map(|path| (path, described.encode_to_vec())));
    }
    Ok(written)
}

/// The code that `builder` generates, as one file.
fn code(builder: Builder, described: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    builder.include_file("all.rs").out_dir(folder.path()).compile_fds(described.clone())?;
    inlined(folder.path(), &fs::read_to_string(folder.path().join("all.rs"))?)
}

/// Combines the modules: every line that includes another file is replaced by that file.
fn inlined(folder: &Path, modules: &str) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for line in modules.lines() {
        let included = line.trim().strip_prefix("include!(\"").and_then(|rest| rest.strip_suffix("\");"));
        match included {
            Some(file) => code.push_str(&fs::read_to_string(folder.join(file))?),
            None => code.push_str(line),
        }
        code.push('\n');
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_files_match_the_proto_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, content) in generate(&root).expect("the files compile") {
            let committed = fs::read(root.join(path)).expect("a committed file");
            assert!(committed == content, "{path} is not what the .proto files say: run `cargo xtask proto`");
        }
    }
}
