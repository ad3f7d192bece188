//! Progress for people, on standard error: bars on a terminal, a line per boot otherwise.
//!
//! Invariant: nothing shown before the end tells the arms' speeds apart: only how far the session is, the time left, and
//! failures; no metric, and no time of a single arm.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

use super::event::{SessionEvent, TrialId};
use bigiron_lab::host::Phase;
use bigiron_model::printable::printable;
use bigiron_model::record::Outcome;
use bigiron_model::store::Folder;

/// How much of a session is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Failed and void trials.
    Problems,
    /// Each trial.
    Trials,
    /// Each step of each trial.
    Steps,
}

/// Shows a session's events.
pub struct Progress {
    detail: Detail,
    shown: Mutex<Shown>,
}

struct Shown {
    text: Text,
    bars: Option<Bars>,
}

struct Bars {
    all: MultiProgress,
    all_trials: ProgressBar,
    trials: BTreeMap<u32, ProgressBar>,
}

impl Progress {
    /// Bars if standard error is a terminal, plain lines otherwise.
    pub fn stderr(detail: Detail) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        let bars = (std::io::stderr().is_terminal() && !dumb && detail == Detail::Trials).then(Bars::new);
        Progress { detail, shown: Mutex::new(Shown { text: Text::default(), bars }) }
    }

    /// The event handler for [`super::run`]: `&|e| progress.show(&e)`.
    pub fn show(&self, event: &SessionEvent) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown { text, bars } = &mut *shown;
        let mut lines = text.lines(event);
        match self.detail {
            Detail::Problems if !is_problem(event) => lines.clear(),
            Detail::Steps => lines.extend(text.step(event)),
            _ => {}
        }
        let lines: Vec<String> = lines.iter().map(|line| printable(line).into_owned()).collect();
        match bars {
            Some(bars) => bars.show(event, text, &lines),
            None => {
                let mut err = std::io::stderr().lock();
                for line in lines {
                    // A closed standard error must not end a study.
                    let _ = writeln!(err, "{line}");
                }
            }
        }
    }
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let all_trials = all.add(ProgressBar::no_length());
        all_trials.set_style(style("{bar:24} {pos}/{len} trials  {msg}"));
        Bars { all, all_trials, trials: BTreeMap::new() }
    }

    fn show(&mut self, event: &SessionEvent, text: &Text, lines: &[String]) {
        // A completed boot only moves the bar; every other event that a log would show leaves a line.
        if !matches!(event, SessionEvent::SlotEnd { outcome: Outcome::Completed, .. }) {
            for line in lines {
                let _ = self.all.println(line);
            }
        }
        match event {
            SessionEvent::SlotStart(trial) => {
                let bar = self.all.add(ProgressBar::new_spinner());
                bar.set_style(style("  {elapsed:>4}  {msg}"));
                bar.set_message(printable(&format!("{}: starting", text.trial(trial))).into_owned());
                // Often enough for the seconds to move, too seldom to disturb what is measured.
                bar.enable_steady_tick(Duration::from_secs(1));
                self.trials.insert(trial.slot, bar);
            }
            SessionEvent::Phase(trial, phase) => {
                if let Some(bar) = self.trials.get(&trial.slot) {
                    // A guest names its own steps.
                    bar.set_message(printable(&format!("{}: {}", text.trial(trial), doing(phase))).into_owned());
                }
            }
            SessionEvent::SlotEnd { trial, .. } | SessionEvent::Void { trial, .. } => {
                if let Some(bar) = self.trials.remove(&trial.slot) {
                    bar.finish_and_clear();
                }
            }
            SessionEvent::SessionStart { .. }
            | SessionEvent::MachineStopped { .. }
            | SessionEvent::Waiting { .. }
            | SessionEvent::Stopping => {}
            SessionEvent::SessionEnd { .. } => {
                for bar in std::mem::take(&mut self.trials).into_values() {
                    bar.finish_and_clear();
                }
                self.all_trials.finish_and_clear();
                return;
            }
        }
        self.all_trials.set_length(u64::from(text.total));
        self.all_trials.set_position(u64::from(text.done));
        self.all_trials.set_message(text.eta().unwrap_or_default());
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a constant template").progress_chars("=> ")
}

/// Whether a quiet session shows the event too.
fn is_problem(event: &SessionEvent) -> bool {
    match event {
        SessionEvent::SlotEnd { outcome, .. } => !matches!(outcome, Outcome::Completed),
        SessionEvent::Void { .. } | SessionEvent::MachineStopped { .. } => true,
        SessionEvent::SessionStart { unreadable, .. } => !unreadable.is_empty(),
        _ => false,
    }
}

/// The current activity of a running trial.
fn doing(phase: &Phase) -> String {
    match phase {
        Phase::Booting => "booting".to_owned(),
        Phase::Up => "kernel is up".to_owned(),
        Phase::Step { workload, step, done, of } if *of > 1 => format!("{workload} {step} ({}/{of})", done + 1),
        Phase::Step { workload, step, .. } => format!("{workload} {step}"),
    }
}

/// Events in words.
#[derive(Debug, Default)]
struct Text {
    total: u32,
    done: u32,
    pairs: u32,
    width: u32,
    /// Number of trials whose time is known, and the sum of their times in seconds.
    timed: (f64, f64),
}

impl Text {
    /// The log lines for an event.
    fn lines(&mut self, event: &SessionEvent) -> Vec<String> {
        match event {
            SessionEvent::SessionStart { total, done, pairs, width, mean_wall_s, unreadable } => {
                (self.total, self.done, self.pairs, self.width) = (*total, *done, *pairs, *width as u32);
                // The mean of earlier sessions weighs as much as one boot of this one, because the machine may have changed.
                self.timed = mean_wall_s.map_or((0.0, 0.0), |mean| (1.0, mean));
                let mut lines: Vec<String> = unreadable
                    .iter()
                    .map(|(line, why)| format!("Warning: records.jsonl line {line} is skipped: {why}"))
                    .collect();
                let resumed = if *done > 0 { format!("Resuming after {done} of ") } else { String::new() };
                let side = if *width > 1 { format!(", {width} in parallel") } else { String::new() };
                lines.push(format!("{resumed}{total} trials in {pairs} pairs{side}"));
                lines
            }
            SessionEvent::SlotStart(_) | SessionEvent::Phase(..) | SessionEvent::SessionEnd { .. } => Vec::new(),
            SessionEvent::SlotEnd { trial, outcome, wall_s, has_artifacts, done } => {
                self.done = *done;
                self.timed = (self.timed.0 + 1.0, self.timed.1 + wall_s);
                let what = match outcome {
                    Outcome::Completed => "completed".to_owned(),
                    Outcome::Failed { failure, message } => {
                        let kept =
                            || format!(" (see {})", Folder::artifacts_name(trial.slot, &trial.arm, trial.attempt));
                        let kept = if *has_artifacts { kept() } else { String::new() };
                        format!("{}: {}{kept}", failure.verb(), in_a_line(message))
                    }
                    Outcome::Void { cause } => format!("void: {}", first_line(cause)),
                };
                vec![format!(
                    "{}: {what}{}",
                    self.counted(trial),
                    self.eta().map_or(String::new(), |e| format!("; {e}"))
                )]
            }
            SessionEvent::Void { trial, cause, again, done } => {
                self.done = *done;
                let trials = if again.len() == 1 { "1 trial".to_owned() } else { format!("{} trials", again.len()) };
                vec![format!("{}: void: {}; {trials} to run again", self.counted(trial), first_line(cause))]
            }
            SessionEvent::Waiting { trials: 1 } => {
                vec!["Waiting for a trial that another worker has claimed".to_owned()]
            }
            SessionEvent::Waiting { trials } => {
                vec![format!("Waiting for {trials} trials that other workers have claimed")]
            }
            SessionEvent::MachineStopped { machine, why } => {
                vec![format!("Warning: `{machine}` runs no more trials of this study; the others go on: {why}")]
            }
            SessionEvent::Stopping => vec!["Stopping the running trials".to_owned()],
        }
    }

    /// A line for a step of a trial.
    fn step(&self, event: &SessionEvent) -> Option<String> {
        match event {
            SessionEvent::SlotStart(trial) => Some(format!("{}: starting", self.trial(trial))),
            SessionEvent::Phase(trial, phase) => Some(format!("{}: {}", self.trial(trial), doing(phase))),
            _ => None,
        }
    }

    fn counted(&self, trial: &TrialId) -> String {
        let width = self.total.to_string().len();
        format!("[{:>width$}/{}] {}", self.done, self.total, self.trial(trial))
    }

    fn trial(&self, trial: &TrialId) -> String {
        let again = if trial.attempt > 0 { format!(", attempt {}", trial.attempt + 1) } else { String::new() };
        let on = trial.machine.as_ref().map_or_else(String::new, |machine| format!(" on {machine}"));
        format!("pair {}/{}{on}, {}{again}", trial.pair + 1, self.pairs, trial.arm)
    }

    /// "about 4 minutes left": boots left times the mean time of a boot, divided by the number of parallel trials.
    fn eta(&self) -> Option<String> {
        let left = self.total.saturating_sub(self.done);
        if left == 0 || self.timed.0 == 0.0 {
            return None;
        }
        let seconds = f64::from(left.div_ceil(self.width.max(1))) * self.timed.1 / self.timed.0;
        let left = Duration::try_from_secs_f64(seconds.max(1.0)).ok()?;
        Some(format!("about {} left", HumanDuration(left)))
    }
}

/// The first line; if it introduces others, also the last, which says most.
fn in_a_line(text: &str) -> String {
    let first = first_line(text);
    match text.lines().last() {
        Some(last) if first.ends_with(':') && last != first => format!("{first} {last}"),
        _ => first.to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::record::Failure;

    fn trial(slot: u32, attempt: u32) -> TrialId {
        TrialId { slot, pair: slot / 2, position: slot % 2, arm: "debian:6.12".to_owned(), attempt, machine: None }
    }

    fn start(done: u32, width: usize, unreadable: Vec<(usize, String)>) -> SessionEvent {
        let mean_wall_s = (done > 0).then_some(30.0);
        SessionEvent::SessionStart { total: 24, done, pairs: 12, width, mean_wall_s, unreadable }
    }

    #[test]
    fn a_log_has_a_line_per_boot() {
        let mut text = Text::default();
        assert_eq!(text.lines(&start(0, 2, Vec::new())), ["24 trials in 12 pairs, 2 in parallel"]);
        assert!(text.lines(&SessionEvent::SlotStart(trial(0, 0))).is_empty());
        assert!(text.lines(&SessionEvent::Phase(trial(0, 0), Phase::Up)).is_empty());
        let end = SessionEvent::SlotEnd {
            trial: trial(0, 0),
            outcome: Outcome::Completed,
            wall_s: 60.0,
            has_artifacts: false,
            done: 1,
        };
        assert_eq!(text.lines(&end), ["[ 1/24] pair 1/12, debian:6.12: completed; about 12 minutes left"]);
        let outcome = Outcome::Failed { failure: Failure::Panic, message: "Oops\nCall trace".to_owned() };
        let end = SessionEvent::SlotEnd { trial: trial(1, 0), outcome, wall_s: 20.0, has_artifacts: true, done: 2 };
        assert_eq!(
            text.lines(&end),
            ["[ 2/24] pair 1/12, debian:6.12: panicked: Oops (see artifacts/0001-debian_6.12-0); about 7 minutes left"]
        );
        let void = SessionEvent::Void { trial: trial(3, 0), cause: "No QEMU".to_owned(), again: vec![2, 3], done: 1 };
        assert_eq!(text.lines(&void), ["[ 1/24] pair 2/12, debian:6.12: void: No QEMU; 2 trials to run again"]);
        let end = SessionEvent::SlotEnd {
            trial: trial(23, 1),
            outcome: Outcome::Completed,
            wall_s: 20.0,
            has_artifacts: false,
            done: 24,
        };
        assert_eq!(text.lines(&end), ["[24/24] pair 12/12, debian:6.12, attempt 2: completed"]);
    }

    #[test]
    fn a_resumed_session_says_so_and_knows_the_time_left() {
        let mut text = Text::default();
        let lines = text.lines(&start(4, 1, vec![(5, "torn: 7 bytes".to_owned())]));
        assert_eq!(
            lines,
            ["Warning: records.jsonl line 5 is skipped: torn: 7 bytes", "Resuming after 4 of 24 trials in 12 pairs"]
        );
        assert_eq!(text.eta().unwrap(), "about 10 minutes left");
    }
}
