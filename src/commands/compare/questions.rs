//! The questions that `bigiron compare` asks on a terminal if it has no arguments.

use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::Path;

use bigiron_archive::PresentKernel;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_probe::servers;

use crate::study::arguments;
use crate::upgrade;

/// The answers that an empty line accepts.
struct Defaults {
    baseline: String,
    other: String,
    workloads: Vec<String>,
}

/// Asks the user for the words of a comparison.
///
/// `options` are the options of this call. `named` are the names of added kernels. With a program of the user's there is no question about
/// workloads.
///
/// # Errors
/// If there is no terminal, or the user cancels.
pub(super) fn ask(options: &[String], named: &[String], has_program: bool) -> anyhow::Result<Vec<String>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Refusal::new("Nothing to compare: name two or more kernels or settings")
            .hint(
                "For example `bigiron compare debian:6.1 debian:6.12`; on a terminal, `bigiron compare` asks for them",
            )
            .into());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let present = PresentKernel::below(Path::new("/"), &release);
    let defaults = Defaults {
        baseline: upgrade::baseline(&present).map_or_else(|| "previous".to_owned(), |(spec, _)| spec),
        other: "latest".to_owned(),
        workloads: if has_program { Vec::new() } else { upgrade::workloads(&servers::running(Path::new("/proc"))) },
    };
    let words = converse(&mut io::stdin().lock(), &mut io::stderr().lock(), &defaults, options, named)?;
    words.ok_or_else(|| Refusal::new("Cancelled; nothing was run").into())
}

/// Asks for both kernels and the workloads, repeats a question until its answer is valid, and shows the command. `None` if the input ends or the user
/// does not confirm.
fn converse(
    input: &mut impl BufRead,
    output: &mut impl Write,
    defaults: &Defaults,
    options: &[String],
    named: &[String],
) -> io::Result<Option<Vec<String>>> {
    let kernel = |words: &[String]| match arguments::sort(words, named) {
        Ok((arms, workloads)) if arms.len() == 1 && workloads.is_empty() => Ok(()),
        Ok(_) => Err(Refusal::new("Name one kernel, such as `debian:6.12`")),
        Err(refusal) => Err(Refusal { hint: None, ..refusal }),
    };
    let workload = |words: &[String]| match arguments::sort(words, named) {
        Ok((arms, _)) if arms.is_empty() => Ok(()),
        Ok((arms, _)) => Err(Refusal::new(format!("`{}` is a kernel, not a workload", arms[0]))),
        Err(refusal) => Err(refusal),
    };
    writeln!(output, "Enter accepts the answer in brackets. `bigiron doc kernels` describes how to\nname a kernel.")?;
    let mut words = Vec::new();
    for (question, usual, check) in [
        ("Baseline, such as the present kernel", std::slice::from_ref(&defaults.baseline), &kernel as &Check),
        ("Kernel to compare with it, or KERNEL,LEVER=VALUE", std::slice::from_ref(&defaults.other), &kernel),
        ("Workloads, separated by spaces", &defaults.workloads[..], &workload),
    ] {
        if usual.is_empty() {
            continue;
        }
        let Some(answer) = answer(input, output, question, usual, check)? else { return Ok(None) };
        words.extend(answer);
    }
    let command = ["bigiron", "compare"].into_iter().map(str::to_owned).chain(words.iter().cloned());
    let command: Vec<String> = command.chain(options.iter().cloned()).map(|word| quote(&word)).collect();
    write!(output, "\nThis is the command:\n  {}\nRun it? [yes]: ", command.join(" "))?;
    output.flush()?;
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        writeln!(output)?;
        return Ok(None);
    }
    Ok(["", "y", "yes"].contains(&line.trim().to_lowercase().as_str()).then_some(words))
}

/// Whether the words of an answer are valid.
type Check<'a> = dyn Fn(&[String]) -> Result<(), Refusal> + 'a;

fn answer(
    input: &mut impl BufRead,
    output: &mut impl Write,
    question: &str,
    usual: &[String],
    check: &Check<'_>,
) -> io::Result<Option<Vec<String>>> {
    loop {
        write!(output, "{question} [{}]: ", usual.join(" "))?;
        output.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            writeln!(output)?;
            return Ok(None);
        }
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = if words.is_empty() { usual.to_vec() } else { words };
        match check(&words) {
            Ok(()) => return Ok(Some(words)),
            Err(refusal) => {
                writeln!(output, "{refusal}")?;
                refusal.hint.iter().try_for_each(|hint| writeln!(output, "hint: {hint}"))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(typed: &str) -> (Option<Vec<String>>, String) {
        let defaults = Defaults {
            baseline: "debian:6.1".to_owned(),
            other: "latest".to_owned(),
            workloads: vec!["micro".to_owned(), "dbsim".to_owned()],
        };
        let mut output = Vec::new();
        let words =
            converse(&mut typed.as_bytes(), &mut output, &defaults, &["--quick".to_owned()], &["mine".to_owned()])
                .unwrap();
        (words, String::from_utf8(output).unwrap())
    }

    #[test]
    fn an_empty_line_accepts_the_default() {
        let (words, said) = talk("\n\n\n\n");
        assert_eq!(words.unwrap(), ["debian:6.1", "latest", "micro", "dbsim"]);
        assert!(said.contains("\n  bigiron compare debian:6.1 latest micro dbsim --quick\n"), "{said}");
    }

    #[test]
    fn a_wrong_answer_is_asked_again() {
        let (words, said) = talk("debain:6.1\nmine\nmicro\nmine,boot.mitigations=off\nlatest\noltp micro\nY\n");
        assert_eq!(words.unwrap(), ["mine", "mine,boot.mitigations=off", "oltp", "micro"]);
        assert!(said.contains("`debain:` is not a source of kernels"), "{said}");
        assert!(said.contains("Name one kernel") && said.contains("`latest` is a kernel, not a workload"), "{said}");
    }

    #[test]
    fn without_confirmation_nothing_runs() {
        for typed in ["", "\n", "\n\n\n", "debian:6.1\nlatest\nmicro\n", "\n\n\nn\n"] {
            assert_eq!(talk(typed).0, None, "{typed:?}");
        }
    }
}
