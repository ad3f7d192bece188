//! A search among kernels.

use super::{BisectionRun, ask, place, search, studies};
use crate::bisect::folder::{ENDS, finished};
use crate::bisect::{Bisection, Candidate, Search, SearchKind, SearchState, list};
use crate::cli::Bisect;
use crate::commands::output;
use crate::commands::output::Terminal;
use crate::conduct::environment::{Environment, refuse};
use crate::conduct::hosts;
use crate::study::arm::ArmText;
use crate::study::question::Question;
use crate::study::resolved::{self, SCREENING_PAIRS, STEP_PAIRS};
use bigiron_archive::looks_like_kernel;
use bigiron_archive::store::Store;
use bigiron_model::identity::Identity;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;

pub(super) fn run(args: &Bisect) -> anyhow::Result<u8> {
    let (Some(what), common) = (&args.what, &args.common) else {
        return Err(Refusal::new("No metric to bisect; name one as WORKLOAD:METRIC").into());
    };
    check_error(args.bounds.error)?;
    let store = Store::open().map_err(refuse)?;
    let named = store.names().map_err(refuse)?;
    let end = |text: &Option<String>| text.as_deref().map(|text| arm(text, &named)).transpose();
    let (good, bad) = (end(&args.good)?, end(&args.bad)?);
    let given = list::parse(&args.kernels, &named)?;
    // All kernels of a given list are inspected before the first boot; those of Debian's list are fetched as they are needed.
    let fetched_first = !given.is_empty();
    let kernels = match (&good, &bad) {
        (Some(good), Some(bad)) if given.is_empty() => {
            // Other errors are reported before the archive is queried.
            let ends = list::named(&[good.clone(), bad.clone()]);
            ask::ask(
                common,
                what,
                &ends,
                &Environment::new(vec![good.kernel.clone()], &Terminal)?.at(common.out.as_deref(), common.design.qemu),
            )?;
            list::of_archive(good, bad, &store, &output::note)?
        }
        _ => list::given(good, bad, given)?,
    };
    let kernels = list::named(&kernels);
    let environment =
        Environment::new(vec![kernels[0].kernel.clone()], &Terminal)?.at(common.out.as_deref(), common.design.qemu);
    let asked = ask::ask(common, what, &kernels, &environment)?;
    let usual = if asked.resolved.clock.is_exact() { STEP_PAIRS } else { SCREENING_PAIRS };
    let pairs = common.pairs_per_step.unwrap_or(usual);
    let ends = vec![kernels[0].clone(), kernels[kernels.len() - 1].clone()];
    let ends = resolved::resolve(&ask::ends(&asked.base, ends, 0), &environment)?;
    resolved::resolve(&ask::step(&asked.base, kernels[..2].to_vec(), pairs, 0), &environment)
        .map_err(|e| Refusal::new(format!("--pairs-per-step: {}", e.message)))?;

    let question_sha256 = asked.sha256(SearchKind::Kernels, args.bounds.error, pairs);
    let names = [&kernels[0], &kernels[kernels.len() - 1]].map(|a| a.name.clone().unwrap_or_default());
    let name = ask::slug(&["bisect", &asked.metric.name, &names[0], "to", &names[1]]);
    let (dir, found) = place(common.out.as_deref(), &name, &question_sha256, &asked, &environment)?;
    let rest = ask::DescriptionParts {
        question_sha256,
        error: args.bounds.error,
        pairs_per_step: pairs,
        steps: args.bounds.steps,
        source: None,
    };
    let candidates = || -> anyhow::Result<Vec<Candidate>> {
        let known = if fetched_first { &asked.resolved } else { &ends };
        let (identities, _) = hosts::kernels(known, &environment)?;
        let of = |name: &str| known.arms.iter().position(|arm| arm.name == name).map(|at| identities[at].clone());
        let candidate = |arm: &ArmText| {
            let name = arm.name.clone().unwrap_or_default();
            let identity = of(&name);
            Candidate {
                identity,
                name,
                kernel: arm.kernel.clone(),
                settings: arm.settings.clone(),
                commit: None,
                link: None,
            }
        };
        Ok(kernels.iter().map(candidate).collect())
    };
    let bisection = match found {
        Some(found) => found,
        None => {
            let repeat = |options: &str| repeat(args, what, options);
            let new = asked.describe(common, SearchKind::Kernels, rest, candidates()?, repeat)?;
            new.create(&dir)?;
            new
        }
    };
    let mut work = BisectionRun::new(common, dir, bisection, asked)?;
    work.bisection.steps = work.bisection.steps.max(args.bounds.steps);
    work.search(&environment)?;
    work.finish()
}

/// Refuses a value that is not an error probability.
pub(super) fn check_error(error: f64) -> Result<(), Refusal> {
    match error > 0.0 && error < 0.5 {
        true => Ok(()),
        false => Err(Refusal::new(format!("--error: {error} is out of range; it must be above 0 and below 0.5"))),
    }
}

/// The bounds of the search that differ from the defaults, as options.
pub(super) fn bounds(error: f64, steps: u32) -> impl Iterator<Item = String> {
    let all = [("error", error, 0.05), ("steps", f64::from(steps), 50.0)];
    all.into_iter().filter(|(_, value, usual)| value != usual).map(|(name, value, _)| format!("--{name} {value}"))
}

fn arm(text: &str, named: &[String]) -> Result<ArmText, Refusal> {
    let kernel = text.split(',').next().unwrap_or(text);
    if !looks_like_kernel(kernel, named) {
        return Err(Refusal::new(format!("`{kernel}` is not a kernel"))
            .hint("A kernel is `debian:VERSION`, a path, `running`, or a name given by `bigiron kernel add`"));
    }
    ArmText::parse(text)
}

/// The command line that repeats the question.
fn repeat(args: &Bisect, what: &str, options: &str) -> String {
    let mut words = vec!["bigiron".to_owned(), "bisect".to_owned()];
    let ends = [("--good", &args.good), ("--bad", &args.bad)];
    words.extend(ends.into_iter().filter_map(|(name, arm)| Some(format!("{name} {}", quote(arm.as_ref()?)))));
    words.extend(args.kernels.iter().map(|list| format!("--kernels {}", quote(list))));
    words.push(what.to_owned());
    words.push(options.to_owned());
    words.extend(bounds(args.bounds.error, args.bounds.steps));
    words.join(" ")
}

impl BisectionRun<'_> {
    /// Tests until there is an answer.
    pub(super) fn search(&self, environment: &Environment<'_>) -> anyhow::Result<()> {
        let mut booted = false;
        loop {
            let search = search(&self.dir, &self.bisection, studies(&self.dir, &self.bisection, &self.cancel)?)?;
            let last = self.bisection.candidates.len() - 1;
            let (folder, kernel) = match search.state() {
                SearchState::Ends => (ENDS.to_owned(), last),
                SearchState::Test(kernel) => (Bisection::step(search.tests.len()), kernel),
                SearchState::Done(_) => {
                    self.ended(booted);
                    return Ok(());
                }
            };
            booted = true;
            if let Some(builder) = &self.builder
                && builder.build(self, &search, kernel)?
            {
                // The build results alone may show that nothing is left to test.
                continue;
            }
            output::note(&self.progress(&search, kernel));
            let question = self.question(&folder, kernel);
            let kernels = self.kernels(&search, kernel, &question, environment)?;
            self.study(&folder, question, &kernels)?;
            if finished(&self.dir, &folder)?.is_none() {
                anyhow::bail!("`{}` ended before all of its boots had a result", self.dir.join(&folder).display());
            }
        }
    }

    /// The question of the study in `folder`, which compares the good kernel with another.
    pub(super) fn question(&self, folder: &str, kernel: usize) -> Question {
        let arms: Vec<ArmText> = [0, kernel].map(|i| self.arm(i)).to_vec();
        let seed = self.bisection.seed;
        match folder {
            ENDS => ask::ends(&self.base, arms, seed),
            _ => ask::step(&self.base, arms, self.bisection.pairs_per_step, ask::seed_of(seed, folder)),
        }
    }

    fn arm(&self, index: usize) -> ArmText {
        let Candidate { name, kernel, settings, .. } = self.bisection.candidates[index].clone();
        ArmText { name: Some(name), kernel, settings }
    }

    /// The baseline's kernel and the candidate's, fetched if necessary.
    pub(super) fn kernels(
        &self,
        search: &Search<'_>,
        kernel: usize,
        question: &Question,
        environment: &Environment<'_>,
    ) -> anyhow::Result<Vec<Identity>> {
        let known: Option<Vec<Identity>> = [0, kernel].into_iter().map(|i| search.kernel(i).cloned()).collect();
        if let Some(known) = known {
            return Ok(known);
        }
        let (mut identities, _) = hosts::kernels(&resolved::resolve(question, environment)?, environment)?;
        if let Some(good) = search.kernel(0) {
            identities[0] = good.clone();
        }
        Ok(identities)
    }

    /// A line that says what is known and what comes next.
    fn progress(&self, search: &Search<'_>, kernel: usize) -> String {
        let name = |index: usize| &self.bisection.candidates[index].name;
        let kind = match self.bisection.what {
            SearchKind::Commits => "commits",
            SearchKind::Configs => "configurations",
            SearchKind::Kernels | SearchKind::Levers => "kernels",
        };
        let Some(posterior) = search.posterior() else {
            return format!(
                "{} {kind}; testing the ends first, `{}` and `{}`",
                self.bisection.candidates.len(),
                name(0),
                name(kernel)
            );
        };
        let span = posterior.credible(1.0 - self.bisection.error);
        format!(
            "Test {}: `{}`; the change lies between `{}` and `{}`, in one of {} places",
            search.tests.len(),
            name(kernel),
            name(span.good),
            name(span.bad),
            span.bad - span.good
        )
    }
}
