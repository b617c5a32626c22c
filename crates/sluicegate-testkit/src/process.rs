//! A server process: started, signalled and killed by its own process id, with its resource usage.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::poll;

/// A running child process. On drop, it is killed and reaped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Runs `program` with `arguments` and appends its output to the file `log`.
    pub(crate) fn spawn(program: &Path, arguments: &[&str], folder: &Path, log: &Path) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let errors = output.try_clone()?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()?;
        Ok(Self { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        // An error means that the process no longer exists.
        self.child.try_wait().map_or(true, |status| status.is_some())
    }

    /// Stops the process (SIGSTOP), and returns when it has really stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        poll::until_true("a stopped process", Duration::from_secs(10), || self.is_paused());
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state() == Some('T')
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Processor time used so far, in user and kernel mode.
    pub(crate) fn processor_time(&self) -> Duration {
        let fields = self.status_fields();
        let ticks: u64 =
            [USER_TICKS, KERNEL_TICKS].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// Memory held in RAM, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pages = self.status_fields().get(RESIDENT_PAGES).and_then(|pages| pages.parse::<u64>().ok());
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or_default();
        pages.unwrap_or_default() * page_bytes
    }

    fn state(&self) -> Option<char> {
        self.status_fields().first()?.chars().next()
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("cannot send {signal:?} to process {}: {error}", self.id()));
    }

    /// The fields of `/proc/<pid>/stat` after the program's name, which may itself contain spaces.
    fn status_fields(&self) -> Vec<String> {
        let path = format!("/proc/{}/stat", self.id());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().map(str::to_owned).collect()
    }
}

// Indexes after the name; proc(5) counts them as fields 14, 15 and 24 of the whole line.
const USER_TICKS: usize = 11;
const KERNEL_TICKS: usize = 12;
const RESIDENT_PAGES: usize = 21;

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. An error means that the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
