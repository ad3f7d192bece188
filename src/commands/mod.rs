//! The subcommands: arguments in, exit status out. Data goes to standard output, everything else to standard error.

mod bisect;
mod compare;
mod dbsim;
mod diff;
mod doc;
mod doctor;
mod dss;
mod fleet;
mod history;
mod host;
mod jobs;
mod kernel;
mod lever;
mod nightly;
mod noise;
mod oltp;
mod once;
mod output;
mod report;
mod run;
mod schema;
mod selftest;
mod show;
mod site;
mod studies;
mod undo;
mod upgrade_check;

use std::process::ExitCode;

use bigiron_model::refusal::Refusal;
use bigiron_model::store::StoreError;
use bigiron_stats::Verdict;

use crate::cli::{Cli, Command, FailOn};
use crate::conduct::signals;

/// Exit status of a run that failed.
const FAILED: u8 = 1;
/// Exit status of a refused command line or study.
const REFUSED: u8 = 2;
/// Exit status with `--fail-on worse`, if an arm is worse.
const WORSE: u8 = 3;
/// Exit status with `--fail-on inconclusive`, if the result is inconclusive.
const INCONCLUSIVE: u8 = 4;
/// Exit status with any `--fail-on`, if there is no valid result: the study is unfinished or invalid, or compared nothing.
const NO_RESULT: u8 = 5;

/// Runs the command.
///
/// Returns the exit status; errors have been printed to standard error.
pub fn main(cli: Cli) -> ExitCode {
    if let Err(error) = signals::survive_file_size_limit() {
        return ExitCode::from(explain(&error));
    }
    output::configure(cli.display);
    let done = match cli.command {
        Command::Compare(args) => compare::run(args),
        Command::UpgradeCheck(args) => upgrade_check::run(args),
        Command::Run(args) => run::run(args),
        Command::Report(args) => report::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Kernel(args) => kernel::run(args.action),
        Command::Lever(args) => lever::run(&args.action),
        Command::Undo(args) => undo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Host(args) => host::run(&args.action),
        Command::Selftest(args) => selftest::run(args),
        Command::Nightly(args) => nightly::run(&args),
        Command::History(args) => history::run(&args),
        Command::Site(args) => site::run(&args),
        Command::Worker(args) => fleet::work(&args),
        Command::Fleet(args) => fleet::fleet(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Studies(args) => studies::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Doc(args) => doc::run(&args),
        Command::Dbsim(args) => dbsim::run(args.action),
        Command::Oltp(args) => oltp::run(args.action),
        Command::Dss(args) => dss::run(args.action),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let status = explain(&error);
            ExitCode::from(signals::received().map_or(status, signals::status))
        }
    }
}

/// Prints an error and returns its exit status.
fn explain(error: &anyhow::Error) -> u8 {
    output::line(format_args!("error: {}", without_numbers(&format!("{error:#}"))));
    let refusal = error.downcast_ref::<Refusal>();
    if let Some(hint) = refusal.and_then(|r| r.hint.as_ref()) {
        output::line(format_args!("hint: {hint}"));
    }
    let wrong_folder = error.downcast_ref::<StoreError>().is_some_and(StoreError::is_wrong_folder);
    if refusal.is_some() || wrong_folder { REFUSED } else { FAILED }
}

/// The message without the numbers that Rust adds to the system's errors: "No such file or directory (os error 2)".
fn without_numbers(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(" (os error ") {
        let after = rest[at + 1..].find(')').map_or(rest.len(), |end| at + 2 + end);
        out.push_str(&rest[..at]);
        rest = &rest[after..];
    }
    out.push_str(rest);
    out
}

/// Exit status of a result under `--fail-on`; `None` is an unfinished result.
fn status(verdict: Option<Verdict>, fail_on: &[FailOn]) -> u8 {
    match verdict {
        _ if fail_on.is_empty() => 0,
        None | Some(Verdict::Invalid) => NO_RESULT,
        Some(Verdict::Worse) => WORSE,
        Some(Verdict::Inconclusive) if fail_on.contains(&FailOn::Inconclusive) => INCONCLUSIVE,
        Some(_) => 0,
    }
}

/// Refuses `--fail-on` for a screening: its few boots can neither rule out a regression nor show one with an exact interval.
fn check_gate(is_screening: bool, fail_on: &[FailOn]) -> Result<(), Refusal> {
    if is_screening && !fail_on.is_empty() {
        return Err(Refusal::new("--fail-on: a screening has too few boots for a decision")
            .hint("Omit `--quick`; a gate needs the pairs of a full study or night"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn the_systems_errors_are_words() {
        let said = "Cannot read `x`: No such file or directory (os error 2)";
        assert_eq!(without_numbers(said), "Cannot read `x`: No such file or directory");
        assert_eq!(without_numbers("a (os error 2); b (os error 13)!"), "a; b!");
        assert_eq!(without_numbers("a (os error"), "a (os error");
    }
}
