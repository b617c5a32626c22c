//! `sluicegate top`: the live numbers of a running server, on a terminal, as text or as JSON.
//!
//! It reads the event stream of the admin listener and changes nothing. If the server is unreachable, it shows the error and
//! retries. Names of clients are escaped. On exit, it restores the terminal.

mod feed;
mod frame;
mod rates;
mod screen;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use sluicegate::rules::file::Environment;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::Error;
use crate::admin_api::Overview;
use crate::settings::Env;
use crate::telemetry::escape;
use feed::{Feed, FeedEvent};
use frame::{Frame, StyledLine, Tone};
use screen::{SIZE_DEFAULT, Screen};

/// The number of overviews in memory: percentiles cover one minute.
const OVERVIEWS_MAX: usize = 61;

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// The server's admin listener; the token comes from SLUICEGATE_ADMIN_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    admin: String,
    /// Print once and exit; as text, this takes a second, because rates need two samples
    #[arg(long)]
    once: bool,
    /// Print the server's overview, one line of JSON per second
    #[arg(long)]
    json: bool,
}

/// Runs until a signal, a key or an error ends it.
pub(super) fn run(args: &TopArgs, env: &Env) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let feed = Feed::new(&args.admin, env.admin_token().cloned())?;
    let outcome = runtime.block_on(follow(args, env.variables(), feed));
    // A thread may still wait for a key.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader closed the pipe, which is a normal end.
        Err(ViewEnd::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(ViewEnd::Output(error)) => Err(error.into()),
        Err(ViewEnd::Rejected(reason)) => Err(reason.into()),
    }
}

/// The reason for the end.
enum ViewEnd {
    Output(io::Error),
    Rejected(String),
}

impl From<io::Error> for ViewEnd {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The value of a variable that is set and not empty.
fn variable<'e>(variables: &'e Environment, name: &str) -> Option<&'e str> {
    variables.get(name).map(|value| &**value).filter(|value| !value.is_empty())
}

async fn follow(args: &TopArgs, variables: &Environment, feed: Feed) -> Result<(), ViewEnd> {
    let mut view = View::new(args, variables, feed.url())?;
    let (sender, mut events) = mpsc::channel(1);
    tokio::spawn(feed.follow(sender));
    let (mut signals, mut resized) = (StopSignals::new()?, signal(SignalKind::window_change())?);
    let mut quit = if view.is_screen() { screen::quit_key() } else { mpsc::channel(1).1 };
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { return Ok(()) };
                if view.handle(event)? == ViewFlow::End {
                    return Ok(());
                }
            }
            () = signals.end() => return Ok(()),
            Some(()) = quit.recv() => return Ok(()),
            _ = resized.recv() => view.draw()?,
        }
    }
}

/// The signals that end the program.
struct StopSignals {
    interrupted: Signal,
    terminated: Signal,
    hung_up: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of the signals.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
            _ = self.hung_up.recv() => {}
        }
    }
}

/// Whether to wait for further events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewFlow {
    Continue,
    End,
}

/// The kind of output.
#[derive(Debug)]
enum TopOutput {
    Json,
    /// One frame after the other, without escape sequences.
    Text,
    Screen(Screen),
}

/// The received overviews and their output.
struct View {
    output: TopOutput,
    is_once: bool,
    url: String,
    overviews: VecDeque<Overview>,
    error: Option<String>,
}

impl View {
    fn new(args: &TopArgs, variables: &Environment, url: &str) -> io::Result<Self> {
        let is_capable = io::stdout().is_terminal() && variable(variables, "TERM") != Some("dumb");
        let output = match args {
            TopArgs { json: true, .. } => TopOutput::Json,
            TopArgs { once: false, .. } if is_capable => {
                TopOutput::Screen(Screen::enter(variable(variables, "NO_COLOR").is_none())?)
            }
            _ => TopOutput::Text,
        };
        Ok(Self { output, is_once: args.once, url: url.to_owned(), overviews: VecDeque::new(), error: None })
    }

    const fn is_screen(&self) -> bool {
        matches!(self.output, TopOutput::Screen(_))
    }

    fn handle(&mut self, event: FeedEvent) -> Result<ViewFlow, ViewEnd> {
        match event {
            FeedEvent::Rejected(reason) => Err(ViewEnd::Rejected(reason)),
            FeedEvent::Disconnected { reason, .. } if self.is_once => {
                Err(ViewEnd::Rejected(format!("cannot watch {}: {reason}", self.url)))
            }
            FeedEvent::Disconnected { reason, pause } => {
                let error = format!("no response from the server; retrying in {} s ({reason})", pause.as_secs());
                if !self.is_screen() {
                    writeln!(io::stderr(), "{error}")?;
                }
                self.error = Some(error);
                if self.is_screen() {
                    self.draw()?;
                }
                Ok(ViewFlow::Continue)
            }
            FeedEvent::Overview(text) => self.show(&text),
        }
    }

    fn show(&mut self, text: &str) -> Result<ViewFlow, ViewEnd> {
        self.error = None;
        if matches!(self.output, TopOutput::Json) {
            // The escapes do not change the meaning of the JSON.
            writeln!(io::stdout(), "{}", escape::escape(text))?;
            return Ok(if self.is_once { ViewFlow::End } else { ViewFlow::Continue });
        }
        let Ok(overview) = serde_json::from_str(text) else {
            let reason = "the overview cannot be parsed; is that a Sluicegate admin listener of this version?";
            return Err(ViewEnd::Rejected(reason.to_owned()));
        };
        self.add(overview);
        if self.is_once && self.overviews.len() < 2 {
            return Ok(ViewFlow::Continue);
        }
        self.draw()?;
        Ok(if self.is_once { ViewFlow::End } else { ViewFlow::Continue })
    }

    /// Adds an overview, and removes those that are no longer useful.
    fn add(&mut self, overview: Overview) {
        let all = |overview: &Overview| rates::decided(&overview.requests);
        // If the counts decrease, the server has restarted.
        if self.overviews.back().is_some_and(|last| all(last) > all(&overview)) {
            self.overviews.clear();
        }
        self.overviews.push_back(overview);
        if self.overviews.len() > OVERVIEWS_MAX {
            self.overviews.pop_front();
        }
    }

    fn draw(&self) -> io::Result<()> {
        match &self.output {
            TopOutput::Json => Ok(()),
            TopOutput::Screen(screen) => {
                let (width, height) = Screen::size();
                screen.show(&self.lines(width, height), width)
            }
            TopOutput::Text => {
                let (width, height) = SIZE_DEFAULT;
                let painted = self
                    .lines(width, height)
                    .iter()
                    .map(|line| line.paint(width, false) + "\n")
                    .collect::<String>();
                io::stdout().write_all(painted.as_bytes())
            }
        }
    }

    fn lines(&self, width: usize, height: usize) -> Vec<StyledLine> {
        let (Some(now), Some(since)) = (self.overviews.back(), self.overviews.front()) else {
            let text = self.error.as_deref().unwrap_or("connecting…");
            return vec![
                StyledLine(vec![(Tone::Title, format!("sluicegate {}  ", self.url))]),
                StyledLine(vec![(Tone::Bad, text.to_owned())]),
            ];
        };
        let before = self.overviews.iter().rev().nth(1).unwrap_or(now);
        // With `--once`, percentiles cover the time since the start of the server, not the last second.
        let since = if self.is_once { now } else { since };
        let hint = if self.is_screen() { "  q quits" } else { "" };
        let frame = Frame { url: &self.url, now, before, since, error: self.error.as_deref(), hint };
        frame.lines(width, height)
    }
}
