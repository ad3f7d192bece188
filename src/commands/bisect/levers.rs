//! A search among the levers in which two arms differ.

use super::{BisectionRun, ask, place, studies};
use crate::bisect::folder::ENDS;
use crate::bisect::levers::{Difference, LIMIT, LeverSearch, LeverSearchState, differences, switched};
use crate::bisect::{Candidate, SearchKind, list};
use crate::cli::BisectLevers;
use crate::commands::output;
use crate::commands::output::Terminal;
use crate::conduct::environment::Environment;
use crate::conduct::hosts;
use crate::study::arm::ArmText;
use crate::study::question::Question;
use crate::study::resolved::{self, SCREENING_PAIRS};
use bigiron_model::identity::Identity;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;

pub(super) fn run(args: &BisectLevers) -> anyhow::Result<u8> {
    let common = &args.common;
    let (a, b) = (ArmText::parse(&args.a)?, ArmText::parse(&args.b)?);
    if a.kernel != b.kernel {
        return Err(Refusal::new(format!(
            "Two kernels, `{}` and `{}`; a bisection of levers needs one",
            a.kernel, b.kernel
        ))
        .hint("`bigiron bisect --good KERNEL --bad KERNEL` searches among kernels")
        .into());
    }
    let differ = differences(&a.settings, &b.settings);
    match differ.len() {
        0 => return Err(Refusal::new("The two arms have the same levers: there is nothing to find").into()),
        1 => {
            let message = format!("The two arms differ in only one lever, `{}`", differ[0].name());
            return Err(Refusal::new(message).hint("`bigiron compare` measures its effect").into());
        }
        n if n > LIMIT => {
            return Err(Refusal::new(format!("The two arms differ in {n} levers; the maximum is {LIMIT}")).into());
        }
        _ => {}
    }
    let pairs = common.pairs_per_step.unwrap_or(SCREENING_PAIRS);
    if pairs < SCREENING_PAIRS {
        let message =
            format!("--pairs-per-step: {pairs} pairs are too few to test a lever; use {SCREENING_PAIRS} or more");
        return Err(Refusal::new(message).into());
    }
    let ends = list::named(&[a.clone(), b]);
    let each = differ.iter().map(|d| lever_arm(&a, &[d]));
    let all: Vec<ArmText> = ends.iter().cloned().chain(each).collect();
    let environment =
        Environment::new(vec![a.kernel.clone()], &Terminal)?.at(common.out.as_deref(), common.design.qemu);
    let asked = ask::ask(common, &args.what, &all, &environment)?;
    let resolved_ends = resolved::resolve(&ask::ends(&asked.base, ends.clone(), 0), &environment)?;
    resolved::resolve(&ask::step(&asked.base, ends.clone(), pairs, 0), &environment)
        .map_err(|e| Refusal::new(format!("--pairs-per-step: {}", e.message)))?;

    let question_sha256 = asked.sha256(SearchKind::Levers, 0.0, pairs);
    let name = ask::slug(&["bisect-levers", &asked.metric.name, &a.kernel]);
    let (dir, found) = place(common.out.as_deref(), &name, &question_sha256, &asked, &environment)?;
    let rest = ask::DescriptionParts { question_sha256, error: 0.05, pairs_per_step: pairs, steps: 0, source: None };
    let bisection = match found {
        Some(found) => found,
        None => {
            let (identities, _) = hosts::kernels(&resolved_ends, &environment)?;
            let candidates = ends.iter().zip(identities).map(|(arm, identity)| Candidate {
                name: arm.name.clone().unwrap_or_default(),
                kernel: arm.kernel.clone(),
                settings: arm.settings.clone(),
                identity: Some(identity),
                commit: None,
                link: None,
            });
            let repeat = |options: &str| {
                let words = [&args.a, &args.b, &args.what].map(|w| quote(w)).join(" ");
                format!("bigiron bisect levers {words} {options}")
            };
            let new = asked.describe(common, SearchKind::Levers, rest, candidates.collect(), repeat)?;
            new.create(&dir)?;
            new
        }
    };
    let work = BisectionRun::new(common, dir, bisection, asked)?;
    work.levers()?;
    work.finish()
}

/// The first arm with some levers switched.
fn lever_arm(a: &ArmText, set: &[&Difference]) -> ArmText {
    let name = set.iter().map(|d| d.name()).collect::<Vec<_>>().join(" + ");
    ArmText { name: Some(name), kernel: a.kernel.clone(), settings: switched(&a.settings, set) }
}

impl BisectionRun<'_> {
    /// Runs studies until there is an answer.
    fn levers(&self) -> anyhow::Result<()> {
        let arms: Vec<ArmText> = self
            .bisection
            .candidates
            .iter()
            .map(|c| ArmText { name: Some(c.name.clone()), kernel: c.kernel.clone(), settings: c.settings.clone() })
            .collect();
        let mut booted = false;
        loop {
            let search =
                LeverSearch { bisection: &self.bisection, studies: studies(&self.dir, &self.bisection, &self.cancel)? };
            let (folder, question) = match search.state() {
                LeverSearchState::Ends => {
                    output::note("Comparing the two arms first");
                    (ENDS.to_owned(), ask::ends(&self.base, arms.clone(), self.bisection.seed))
                }
                LeverSearchState::Study { folder, sets } => {
                    let differences = search.differences();
                    let name = |set: &Vec<usize>| format!("`{}`", search.name(set));
                    output::note(&format!("Switched: {}", sets.iter().map(name).collect::<Vec<_>>().join(", ")));
                    let of = |set: &Vec<usize>| {
                        lever_arm(&arms[0], &set.iter().map(|i| &differences[*i]).collect::<Vec<_>>())
                    };
                    let arms = std::iter::once(arms[0].clone()).chain(sets.iter().map(of)).collect();
                    let seed = ask::seed_of(self.bisection.seed, &folder);
                    (folder, ask::step(&self.base, arms, self.bisection.pairs_per_step, seed))
                }
                LeverSearchState::Done(_) => {
                    self.ended(booted);
                    return Ok(());
                }
            };
            booted = true;
            let kernels = self.one_kernel(&question)?;
            self.study(&folder, question, &kernels)?;
        }
    }

    /// The kernel of all arms.
    fn one_kernel(&self, question: &Question) -> anyhow::Result<Vec<Identity>> {
        let identity = self.bisection.candidates[0].identity.clone();
        let identity = identity.ok_or_else(|| anyhow::anyhow!("The bisection does not name its kernel"))?;
        Ok(vec![identity; question.arms.len()])
    }
}
