//! A search among the commits of a source tree, which are built as they are needed.

use crate::commands::output::Terminal;
use crate::conduct;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};

use super::configs::Links;
use super::{BisectionRun, ask, place, search, studies};
use crate::bisect::folder::ENDS;
use crate::bisect::git::config::Base;
use crate::bisect::git::make::Arguments;
use crate::bisect::git::touched::Function;
use crate::bisect::git::workspace::BuildEnd;
use crate::bisect::git::{BuildOutcome, Built, Commit, Recipe, SourceTree, Touched, Workspace, built, short};
use crate::bisect::{Candidate, Search, SearchKind, SearchResult, SearchState, Source};
use crate::cli::Bisect;
use crate::commands::output;
use crate::conduct::environment::{Environment, refuse};
use crate::study::arm::ArmText;
use crate::study::resolved::{self, ResolvedQuestion, SCREENING_PAIRS, STEP_PAIRS};
use bigiron_archive::store::Store;
use bigiron_archive::{KernelError, modules};
use bigiron_image as image;
use bigiron_model::folder_files;
use bigiron_model::identity::Identity;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;

/// The folder with the configurations of installed kernels.
const BOOT: &str = "/boot";

pub(super) fn run(args: &Bisect) -> anyhow::Result<u8> {
    let (Some(what), Some(dir), Some(good), Some(bad)) = (&args.what, &args.git, &args.good, &args.bad) else {
        return Err(Refusal::new("A search among commits is `--git DIR --good REV --bad REV WORKLOAD:METRIC`").into());
    };
    super::kernels::check_error(args.bounds.error)?;
    let common = &args.common;
    let tree = SourceTree::open(dir)?;
    let good = tree.revision("good", good)?;
    let bad = tree.revision("bad", bad)?;
    let commits = tree.between(&good, &bad, &args.paths)?;
    let arguments = Arguments::parse(&args.make_arg)?;
    let running = rustix::system::uname().release().to_string_lossy().into_owned();
    let base = Base::choose(args.config.as_deref(), tree.top().as_deref(), Path::new(BOOT), &running)?;
    let is_simulated = common.sim.is_some();
    if !is_simulated {
        arguments.check()?;
    }
    let environment = Environment::new(Vec::new(), &Terminal)?.at(common.out.as_deref(), common.design.qemu);
    let ends = |kernel: &dyn Fn(&Commit) -> String| {
        [&commits[0], &commits[commits.len() - 1]].map(|commit| arm(commit, kernel(commit))).to_vec()
    };
    let asked = ask::ask(common, what, &ends(&|c| format!("git-{}", short(&c.hash))), &environment)?;
    let recipe = Recipe::new(base, options(&asked.resolved), arguments);
    let ends = ends(&|c| recipe.name(&c.hash));
    let usual = if asked.resolved.clock.is_exact() { STEP_PAIRS } else { SCREENING_PAIRS };
    let pairs = common.pairs_per_step.unwrap_or(usual);
    resolved::resolve(&ask::ends(&asked.base, ends.clone(), 0), &environment)?;
    resolved::resolve(&ask::step(&asked.base, ends, pairs, 0), &environment)
        .map_err(|e| Refusal::new(format!("--pairs-per-step: {}", e.message)))?;

    let names: Vec<String> = commits.iter().map(|c| recipe.name(&c.hash)).collect();
    let all = format!("{} {}", asked.sha256(SearchKind::Commits, args.bounds.error, pairs), names.join(" "));
    let question_sha256: String = Sha256::digest(all).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = ask::slug(&["bisect", &asked.metric.name, short(&good), "to", short(&bad)]);
    let (out, found) = place(common.out.as_deref(), &name, &question_sha256, &asked, &environment)?;
    let source = Source {
        tree: dir.clone(),
        config: recipe.base.name(),
        bad_config: None,
        commit: None,
        make: args.make_arg.clone(),
        paths: args.paths.clone(),
    };
    let rest = ask::DescriptionParts {
        question_sha256,
        error: args.bounds.error,
        pairs_per_step: pairs,
        steps: args.bounds.steps,
        source: Some(source),
    };
    let bisection = match found {
        Some(found) => found,
        None => {
            let candidate = |commit: &Commit| Candidate {
                name: short(&commit.hash).to_owned(),
                kernel: recipe.name(&commit.hash),
                settings: Vec::new(),
                identity: None,
                commit: Some(commit.clone()),
                link: None,
            };
            let repeat = |options: &str| repeat(args, what, options);
            let candidates = commits.iter().map(candidate).collect();
            let new = asked.describe(common, SearchKind::Commits, rest, candidates, repeat)?;
            new.create(&out)?;
            new
        }
    };
    if !is_simulated {
        output::note(&format!("Kernels are configured by {}", recipe.base.name()));
    }
    let mut work = BisectionRun::new(common, out, bisection, asked)?;
    work.bisection.steps = work.bisection.steps.max(args.bounds.steps);
    if !is_simulated {
        let builder = Builder {
            store: Store::open().map_err(refuse)?,
            tree: tree.clone(),
            recipe,
            workspace: OnceCell::new(),
            links: None,
            cancel: Arc::clone(&work.cancel),
        };
        if !super::is_finished(&work.dir, &work.bisection, &work.cancel)? {
            builder.workspace()?;
        }
        work.builder = Some(builder);
    }
    work.search(&environment)?;
    work.tell(&tree, &environment)?;
    if let Some(builder) = work.builder.take()
        && !args.keep_build
    {
        builder.remove();
    }
    work.finish()
}

fn arm(commit: &Commit, kernel: String) -> ArmText {
    ArmText { name: Some(short(&commit.hash).to_owned()), kernel, settings: Vec::new() }
}

/// Options that the study's workloads and file system need in addition to those of all guests.
pub(super) fn options(resolved: &ResolvedQuestion) -> Vec<String> {
    let filesystem = image::module(&resolved.machine.filesystem);
    let of_workloads = resolved.arms.iter().flat_map(|arm| arm.parsed.needs()).flat_map(|needs| needs.modules);
    let mut options: Vec<String> = filesystem.into_iter().chain(of_workloads).map(modules::option).collect();
    options.sort();
    options.dedup();
    options
}

/// The command line that repeats the question.
fn repeat(args: &Bisect, what: &str, options: &str) -> String {
    let mut words = vec!["bigiron".to_owned(), "bisect".to_owned()];
    let mut option = |name: &str, value: Option<&str>| {
        words.extend(value.map(|value| format!("--{name} {}", quote(value))));
    };
    let shown = |path: &PathBuf| path.display().to_string();
    option("git", args.git.as_ref().map(shown).as_deref());
    option("good", args.good.as_deref());
    option("bad", args.bad.as_deref());
    option("config", args.config.as_deref());
    words.extend(args.make_arg.iter().map(|word| format!("--make-arg={}", quote(word))));
    words.extend([what.to_owned(), options.to_owned()]);
    words.extend(super::kernels::bounds(args.bounds.error, args.bounds.steps));
    if !args.paths.is_empty() {
        words.push("--".to_owned());
        words.extend(args.paths.iter().map(|path| quote(path)));
    }
    words.join(" ")
}

/// Builds kernels from candidates.
pub(super) struct Builder {
    pub store: Store,
    pub tree: SourceTree,
    pub recipe: Recipe,
    /// Opened for the first build.
    pub workspace: OnceCell<Workspace>,
    /// The links to search, if the candidates are configurations of one commit.
    pub links: Option<Links>,
    pub cancel: Arc<AtomicBool>,
}

impl Builder {
    pub(super) fn workspace(&self) -> anyhow::Result<&Workspace> {
        if self.workspace.get().is_none() {
            let opened = Workspace::open(&self.store, &self.tree, &output::note)?;
            let _ = self.workspace.set(opened);
        }
        self.workspace.get().context("The build folder is not open")
    }

    /// Ensures that the kernels of a test are in the cache; returns whether this yielded new results.
    pub(super) fn build(&self, work: &BisectionRun<'_>, search: &Search<'_>, kernel: usize) -> anyhow::Result<bool> {
        let mut is_new = false;
        for index in [0, kernel] {
            if let Some(kernel) = search.builds.get(&index).and_then(|built| built.kernel.as_ref())
                && self.is_there(kernel)?
            {
                continue;
            }
            let built = self.one(work, index)?;
            let is_end = index == 0 || index + 1 == work.bisection.candidates.len();
            if built.outcome == BuildOutcome::Failed && is_end {
                bail!(
                    "{} is an end of the search and could not be built: {}{}",
                    work.bisection.candidates[index].name,
                    built.why.as_deref().unwrap_or("make failed"),
                    built.log.map_or_else(String::new, |log| format!("; the log is {}", work.dir.join(log).display()))
                );
            }
            // A candidate that is merely built again is not new.
            is_new |= search.builds.get(&index) != Some(&built);
            built.write(&work.dir)?;
        }
        self.differ(work)?;
        Ok(is_new)
    }

    /// Refuses ends that build to the same kernel.
    fn differ(&self, work: &BisectionRun<'_>) -> anyhow::Result<()> {
        let [good, .., bad] = &work.bisection.candidates[..] else { return Ok(()) };
        let is_configs = self.links.is_some();
        let bytes = |candidate: &Candidate| -> anyhow::Result<Option<(String, Option<String>)>> {
            let built = Built::read(&work.dir, candidate.build().unwrap_or_default())?;
            let kernel = built.and_then(|built| built.kernel);
            Ok(kernel.map(|kernel| (kernel.image_sha256, kernel.config_sha256.filter(|_| !is_configs))))
        };
        let of_good = bytes(good)?;
        if of_good.is_none() || of_good != bytes(bad)? {
            return Ok(());
        }
        let refusal = Refusal::new(match is_configs {
            true => {
                "The two configurations make the same kernel, byte for byte: none of the options that differ affects it"
                    .to_owned()
            }
            false => format!(
                "`{}` and `{}` build to the same bytes: none of the commits between them affects this kernel",
                good.name, bad.name
            ),
        });
        Err(match is_configs {
            true => refusal.hint("Only the boot image is built; modules of the configurations are not in it"),
            false => refusal.hint("The configuration may lack what they change; give another with `--config FILE`"),
        }
        .into())
    }

    pub(super) fn is_there(&self, kernel: &Identity) -> anyhow::Result<bool> {
        match self.store.get(kernel) {
            Ok(_) => Ok(true),
            Err(KernelError::NotCached { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Builds one candidate.
    fn one(&self, work: &BisectionRun<'_>, index: usize) -> anyhow::Result<Built> {
        let candidate = &work.bisection.candidates[index];
        let key = candidate.build().context("A candidate is not buildable")?;
        let log = Built::log(key);
        folder_files::make_folders(&work.dir, built::FOLDER)?;
        let subject = candidate.subject().filter(|subject| !subject.is_empty());
        output::note(&format!("Building {}{}", candidate.name, subject.map_or_else(String::new, |s| format!(": {s}"))));
        let path = work.dir.join(&log);
        let (commit, recipe) = match (&candidate.commit, &candidate.link, &self.links) {
            (Some(commit), _, _) => (commit.hash.as_str(), self.recipe.clone()),
            (None, Some(link), Some(links)) => {
                if let Some(built) = self.decided_by_options(work, index)? {
                    return Ok(built);
                }
                (links.commit.as_str(), self.recipe.link(link.switched, links.chain.text(link.switched)))
            }
            _ => bail!("`{}` cannot be built", candidate.name),
        };
        let workspace = self.workspace()?;
        let done = workspace.build(&self.store, commit, &recipe, &path, &self.cancel, &|_| {})?;
        let new = |outcome, seconds| Built {
            commit: key.to_owned(),
            outcome,
            why: None,
            seconds,
            image_bytes: None,
            log: None,
            kernel: None,
        };
        Ok(match done {
            BuildEnd::Interrupted => bail!("Interrupted; the same command resumes the bisection"),
            BuildEnd::Failed { why, seconds } => {
                output::note(&format!("{} cannot be built: {why}", candidate.name));
                Built { why: Some(why), log: Some(log), ..new(BuildOutcome::Failed, seconds) }
            }
            BuildEnd::Kernel { kernel, seconds } => {
                let image_bytes = fs::metadata(&kernel.image).ok().map(|m| m.len());
                let of = match seconds {
                    0.0 => Built { ..new(BuildOutcome::Cached, 0.0) },
                    _ => Built { log: Some(log), ..new(BuildOutcome::Built, seconds) },
                };
                Built { image_bytes, kernel: Some(kernel.identity), ..of }
            }
        })
    }

    /// Removes the build folder.
    pub(super) fn remove(self) {
        if let Some(workspace) = self.workspace.into_inner()
            && let Err(e) = workspace.remove()
        {
            output::line(format_args!("warning: The build folder cannot be removed: {e}"));
        }
    }
}

impl BisectionRun<'_> {
    /// Stores the facts to report about the commits at which the change was found.
    fn tell(&self, tree: &SourceTree, environment: &Environment<'_>) -> anyhow::Result<()> {
        let search = search(&self.dir, &self.bisection, studies(&self.dir, &self.bisection, &self.cancel)?)?;
        let SearchState::Done(SearchResult::Place(span)) = search.state() else { return Ok(()) };
        let hash = |index: usize| self.bisection.candidates[index].commit.as_ref().map_or("", |c| c.hash.as_str());
        let known = Touched::read(&self.dir)?;
        if known.is_some_and(|known| known.good == hash(span.good) && known.bad == hash(span.bad)) {
            return Ok(());
        }
        let functions = self.functions_or_not(&search, environment)?;
        let commits: Vec<&str> = (span.good + 1..=span.bad).map(hash).collect();
        Touched::of(tree, hash(span.good), &commits, functions.as_deref()).write(&self.dir)?;
        Ok(())
    }

    /// The functions that cause the difference between the ends, if instructions can be counted.
    fn functions(&self, search: &Search<'_>, environment: &Environment<'_>) -> anyhow::Result<Option<Vec<Function>>> {
        if self.builder.is_none() || !self.bisection.clock.is_exact() {
            return Ok(None);
        }
        output::note("Profiling the ends");
        let last = self.bisection.candidates.len() - 1;
        let question = self.question(ENDS, last);
        let kernels = self.kernels(search, last, &question, environment)?;
        let looked = self.look(ENDS, question, &kernels, 1)?;
        Ok(functions(&looked, &self.bisection.metric.name))
    }

    /// The same; an error becomes a warning.
    pub(super) fn functions_or_not(
        &self,
        search: &Search<'_>,
        environment: &Environment<'_>,
    ) -> anyhow::Result<Option<Vec<Function>>> {
        match self.functions(search, environment) {
            Err(e) if !self.cancel.load(std::sync::atomic::Ordering::Relaxed) => {
                output::line(format_args!("warning: Cannot name the functions that cost more: {e:#}"));
                Ok(None)
            }
            functions => functions,
        }
    }
}

/// Smallest share of the difference for which a function is named.
const LEAST_SHARE: f64 = 0.005;

/// The functions among a study's causes that change in the direction of the difference and have at least the least share.
fn functions(looked: &conduct::Conducted, metric: &str) -> Option<Vec<Function>> {
    let causes = looked.why.causes.iter().find(|causes| causes.metric == metric)?;
    let difference = causes.b - causes.a;
    let makes = |cause: &&bigiron_judge::causes::Cause| cause.delta() / difference >= LEAST_SHARE;
    let listed = causes.causes.iter().take(causes.listed).filter(makes);
    let function = |cause: &bigiron_judge::causes::Cause| Function {
        name: cause.name.clone(),
        more_ns: cause.delta(),
        file: String::new(),
    };
    Some(listed.map(function).collect())
}
