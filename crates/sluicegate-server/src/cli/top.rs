//! `sluicegate top`: the live numbers of a running server in a terminal, or as text or JSON for whatever reads them.
//!
//! It reads the admin listener's feed and changes nothing. A server that is gone is said so and waited for. Nothing that a
//! client is called can act on the terminal, and the terminal is as before when it ends.

mod feed;
mod frame;
mod look;
mod screen;
mod words;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use sluicegate::rules::file::Environment;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::Error;
use crate::settings::Env;
use crate::telemetry::escape;
use feed::{Feed, News};
use frame::{Line, Scene, Tone};
use look::Look;
use screen::{SIZE_DEFAULT, Screen};

/// How many looks are remembered: percentiles are of a minute.
const LOOKS_MAX: usize = 61;

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// The server's admin listener; its token is taken from SLUICEGATE_ADMIN_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    admin: String,
    /// Print once and end; as text, that takes a second, because rates need two looks
    #[arg(long)]
    once: bool,
    /// Print what the server tells, one line of JSON per second
    #[arg(long)]
    json: bool,
}

/// Watches until somebody ends it.
pub(super) fn run(args: &TopArgs, env: &Env) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let feed = Feed::new(&args.admin, env.admin_token().cloned())?;
    let outcome = runtime.block_on(watch(args, env.variables(), feed));
    // A thread may still wait for a key that nobody will press.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Whoever read this wants no more of it.
        Err(Ended::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Ended::Output(error)) => Err(error.into()),
        Err(Ended::Refused(why)) => Err(why.into()),
    }
}

/// Why there is nothing more to show.
enum Ended {
    Output(io::Error),
    Refused(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// A variable that is there and not empty.
fn variable<'e>(variables: &'e Environment, name: &str) -> Option<&'e str> {
    variables.get(name).map(|value| &**value).filter(|value| !value.is_empty())
}

async fn watch(args: &TopArgs, variables: &Environment, feed: Feed) -> Result<(), Ended> {
    let mut watch = Watch::new(args, variables, feed.place())?;
    let (sender, mut news) = mpsc::channel(1);
    tokio::spawn(feed.follow(sender));
    let (mut signals, mut resized) = (Signals::new()?, signal(SignalKind::window_change())?);
    let mut quit = if watch.is_screen() { screen::quit_key() } else { mpsc::channel(1).1 };
    loop {
        tokio::select! {
            told = news.recv() => {
                let Some(told) = told else { return Ok(()) };
                if watch.hear(told)? == Heard::Enough {
                    return Ok(());
                }
            }
            () = signals.end() => return Ok(()),
            Some(()) = quit.recv() => return Ok(()),
            _ = resized.recv() => watch.draw()?,
        }
    }
}

/// Whoever wants this to end.
struct Signals {
    interrupted: Signal,
    terminated: Signal,
    hung_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until it is time to end.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
            _ = self.hung_up.recv() => {}
        }
    }
}

/// Whether there is more to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    More,
    Enough,
}

/// How it is shown.
#[derive(Debug)]
enum Output {
    Json,
    /// One picture after the other, without anything that acts on a terminal.
    Text,
    Screen(Screen),
}

/// What was heard, and where it is shown.
struct Watch {
    output: Output,
    is_once: bool,
    place: String,
    looks: VecDeque<Look>,
    trouble: Option<String>,
}

impl Watch {
    fn new(args: &TopArgs, variables: &Environment, place: &str) -> io::Result<Self> {
        let is_capable = io::stdout().is_terminal() && variable(variables, "TERM") != Some("dumb");
        let output = match args {
            TopArgs { json: true, .. } => Output::Json,
            TopArgs { once: false, .. } if is_capable => {
                Output::Screen(Screen::enter(variable(variables, "NO_COLOR").is_none())?)
            }
            _ => Output::Text,
        };
        Ok(Self { output, is_once: args.once, place: place.to_owned(), looks: VecDeque::new(), trouble: None })
    }

    const fn is_screen(&self) -> bool {
        matches!(self.output, Output::Screen(_))
    }

    fn hear(&mut self, news: News) -> Result<Heard, Ended> {
        match news {
            News::Refused(why) => Err(Ended::Refused(why)),
            News::Lost { why, .. } if self.is_once => {
                Err(Ended::Refused(format!("cannot watch {}: {why}", self.place)))
            }
            News::Lost { why, pause } => {
                let trouble = format!("the server does not answer; trying again in {} s ({why})", pause.as_secs());
                if !self.is_screen() {
                    writeln!(io::stderr(), "{trouble}")?;
                }
                self.trouble = Some(trouble);
                if self.is_screen() {
                    self.draw()?;
                }
                Ok(Heard::More)
            }
            News::Told(text) => self.told(&text),
        }
    }

    fn told(&mut self, text: &str) -> Result<Heard, Ended> {
        self.trouble = None;
        if matches!(self.output, Output::Json) {
            // The same JSON, and nothing in it that acts on a terminal.
            writeln!(io::stdout(), "{}", escape::escape(text))?;
            return Ok(if self.is_once { Heard::Enough } else { Heard::More });
        }
        let Ok(look) = serde_json::from_str(text) else {
            let why = "what is told there cannot be read; is that a Sluicegate admin listener of this version?";
            return Err(Ended::Refused(why.to_owned()));
        };
        self.remember(look);
        if self.is_once && self.looks.len() < 2 {
            return Ok(Heard::More);
        }
        self.draw()?;
        Ok(if self.is_once { Heard::Enough } else { Heard::More })
    }

    /// Keeps a look for as long as it is good for something.
    fn remember(&mut self, look: Look) {
        let all = |look: &Look| look.requests.all();
        // Counts that are less than before are those of another process.
        if self.looks.back().is_some_and(|last| all(last) > all(&look)) {
            self.looks.clear();
        }
        self.looks.push_back(look);
        if self.looks.len() > LOOKS_MAX {
            self.looks.pop_front();
        }
    }

    fn draw(&self) -> io::Result<()> {
        match &self.output {
            Output::Json => Ok(()),
            Output::Screen(screen) => {
                let (width, height) = Screen::size();
                screen.show(&self.lines(width, height), width)
            }
            Output::Text => {
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

    fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let (Some(now), Some(since)) = (self.looks.back(), self.looks.front()) else {
            let words = self.trouble.as_deref().unwrap_or("connecting…");
            return vec![
                Line(vec![(Tone::Title, format!("sluicegate {}  ", self.place))]),
                Line(vec![(Tone::Bad, words.to_owned())]),
            ];
        };
        let before = self.looks.iter().rev().nth(1).unwrap_or(now);
        // Whoever looks once wants to know how it has been, not how the last second was.
        let since = if self.is_once { now } else { since };
        let hint = if self.is_screen() { "  q quits" } else { "" };
        let scene = Scene { place: &self.place, now, before, since, trouble: self.trouble.as_deref(), hint };
        scene.lines(width, height)
    }
}
