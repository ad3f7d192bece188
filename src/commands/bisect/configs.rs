//! A search among configurations of one source tree, which are built as they are needed.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};

use super::git::{Builder, options};
use super::{BisectionRun, ask, place, search, studies};
use crate::bisect::config::kconfig::Described;
use crate::bisect::config::{Candidates, Chain, ConfigOptions, Kconfig, OptionChange, Switched, candidates};
use crate::bisect::git::config::Base;
use crate::bisect::git::make::Arguments;
use crate::bisect::git::workspace::ConfigEnd;
use crate::bisect::git::{BuildOutcome, Built, Recipe, SourceTree, built, short};
use crate::bisect::{Candidate, ChainLink, SearchKind, SearchResult, SearchState, Source};
use crate::cli::BisectConfig;
use crate::commands::output;
use crate::commands::output::Terminal;
use crate::conduct::environment::{Environment, refuse};
use crate::conduct::signals;
use crate::study::arm::ArmText;
use crate::study::resolved::{self, SCREENING_PAIRS, STEP_PAIRS};
use bigiron_archive::store::Store;
use bigiron_model::folder_files;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_model::store::folder::write_whole;

/// The names of the ends.
const GOOD: &str = "good";
const BAD: &str = "bad";

/// Maximum number of differences for which all links are configured before the first boot: make takes a second or two for each.
const LAID_OUT: usize = 64;

/// Maximum number of options of a place that are looked up in the tree.
const LOOKED_UP: usize = 24;

/// The configurations of a commit that are searched.
pub(super) struct Links {
    pub commit: String,
    pub chain: Chain,
    kconfig: Kconfig,
}

pub(super) fn run(args: &BisectConfig) -> anyhow::Result<u8> {
    super::kernels::check_error(args.bounds.error)?;
    let common = &args.common;
    let tree = SourceTree::open(&args.git)?;
    let commit = tree.revision("at", &args.at)?;
    let arguments = Arguments::parse(&args.make_arg)?;
    let (good, bad) = (Base::given("good", &args.good)?, Base::given("bad", &args.bad)?);
    let is_simulated = common.sim.is_some();
    if !is_simulated {
        arguments.check()?;
    }
    let environment = Environment::new(Vec::new(), &Terminal)?.at(common.out.as_deref(), common.design.qemu);
    let arms = |kernel: &dyn Fn(&str) -> String| [GOOD, BAD].map(|end| arm(end, kernel(end))).to_vec();
    let asked = ask::ask(common, &args.what, &arms(&|end| format!("git-{}-{end}", short(&commit))), &environment)?;
    let of_good = Recipe::new(good.clone(), options(&asked.resolved), arguments);
    let of_bad = of_good.with(bad.clone());
    let recipe = of_good.clone().between(&bad);
    let usual = if asked.resolved.clock.is_exact() { STEP_PAIRS } else { SCREENING_PAIRS };
    let pairs = common.pairs_per_step.unwrap_or(usual);
    let ends = arms(&|end| format!("{}-{end}", recipe.name(&commit)));
    resolved::resolve(&ask::ends(&asked.base, ends.clone(), 0), &environment)?;
    resolved::resolve(&ask::step(&asked.base, ends, pairs, 0), &environment)
        .map_err(|e| Refusal::new(format!("--pairs-per-step: {}", e.message)))?;

    let all = format!("{} {}", asked.sha256(SearchKind::Configs, args.bounds.error, pairs), recipe.name(&commit));
    let question_sha256: String = Sha256::digest(all).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = ask::slug(&["bisect-config", &asked.metric.name, short(&commit)]);
    let (out, found) = place(common.out.as_deref(), &name, &question_sha256, &asked, &environment)?;
    let cancel = signals::cancelled_by_signals()?;
    let mut builder = Builder {
        store: Store::open().map_err(refuse)?,
        tree,
        recipe,
        workspace: OnceCell::new(),
        links: None,
        cancel: Arc::clone(&cancel),
    };
    let kept = match &found {
        Some(_) => (read(&out, GOOD)?, read(&out, BAD)?),
        None => (None, None),
    };
    let texts = match kept {
        (Some(good), Some(bad)) => (good, bad),
        _ => builder.ends(&commit, &of_good, &of_bad)?,
    };
    let kconfig = Kconfig::of(&builder.tree, &commit);
    let chain =
        Chain::new(texts.0, texts.1, &kconfig).map_err(|why| Refusal::new(format!("make olddefconfig: {why}")))?;
    let links = Links { commit: commit.clone(), chain, kconfig };
    let bisection = match found {
        Some(found) => found,
        None => {
            if links.chain.is_empty() {
                let message = format!(
                    "In this tree `{}` and `{}` are the same configuration: there is nothing to find",
                    good.name(),
                    bad.name()
                );
                builder.done(args.keep_build);
                return Err(Refusal::new(message)
                    .hint("Both are processed by `make olddefconfig`, with what a guest needs built in")
                    .into());
            }
            let source = Source {
                tree: args.git.clone(),
                config: good.name(),
                bad_config: Some(bad.name()),
                commit: Some(commit),
                make: args.make_arg.clone(),
                paths: Vec::new(),
            };
            let rest = ask::DescriptionParts {
                question_sha256,
                error: args.bounds.error,
                pairs_per_step: pairs,
                steps: args.bounds.steps,
                source: Some(source),
            };
            let laid = builder.lay_out(&links)?;
            let candidates = laid.iter().map(|(link, _)| builder.candidate(&links, link)).collect();
            let repeat = |options: &str| repeat(args, options);
            let new = asked.describe(common, SearchKind::Configs, rest, candidates, repeat)?;
            new.create(&out)?;
            for (candidate, (_, text)) in new.candidates.iter().zip(&laid) {
                if let Some(text) = text {
                    keep(&out, &candidate.name, text)?;
                }
            }
            new
        }
    };
    for (name, count) in [(GOOD, 0), (BAD, links.chain.switches().len())] {
        keep(&out, name, &links.chain.text(count))?;
    }
    builder.links = Some(links);
    let mut work = BisectionRun::with(common, out, bisection, asked, cancel);
    work.bisection.steps = work.bisection.steps.max(args.bounds.steps);
    if !super::is_finished(&work.dir, &work.bisection, &work.cancel)? {
        builder.workspace()?;
    }
    // A simulated search configures the links but builds none.
    let layer = if is_simulated { Some(builder) } else { work.builder.replace(builder) };
    work.search(&environment)?;
    if let Some(builder) = work.builder.as_ref().or(layer.as_ref()) {
        work.tell_of_options(builder, &environment)?;
    }
    if let Some(builder) = work.builder.take().or(layer) {
        builder.done(args.keep_build);
    }
    work.finish()
}

fn arm(name: &str, kernel: String) -> ArmText {
    ArmText { name: Some(name.to_owned()), kernel, settings: Vec::new() }
}

/// The command line that repeats the question.
fn repeat(args: &BisectConfig, options: &str) -> String {
    let mut words = vec!["bigiron bisect config".to_owned()];
    let mut option = |name: &str, value: &str| words.push(format!("--{name} {}", quote(value)));
    option("git", &args.git.display().to_string());
    if args.at != "HEAD" {
        option("at", &args.at);
    }
    option("good", &args.good);
    option("bad", &args.bad);
    words.extend(args.make_arg.iter().map(|word| format!("--make-arg={}", quote(word))));
    words.extend([args.what.clone(), options.to_owned()]);
    words.extend(super::kernels::bounds(args.bounds.error, args.bounds.steps));
    words.join(" ")
}

/// The file with the configuration of a candidate, below the bisection's folder.
fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(built::FOLDER).join(format!("{name}.config"))
}

/// The configuration of a candidate, if its file exists.
fn read(dir: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let path = file(dir, name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("Cannot read `{}`", path.display())),
    }
}

fn keep(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let folder = dir.join(built::FOLDER);
    folder_files::make_folders(dir, built::FOLDER).with_context(|| format!("Cannot create `{}`", folder.display()))?;
    write_whole(&folder, &format!("{name}.config"), text.as_bytes())?;
    Ok(())
}

fn parsed(text: &str) -> anyhow::Result<ConfigOptions> {
    ConfigOptions::parse(text).map_err(|(line, why)| anyhow::anyhow!("Line {line} of a kernel's .config: {why}"))
}

impl Builder {
    /// Configures both ends.
    fn ends(&self, commit: &str, good: &Recipe, bad: &Recipe) -> anyhow::Result<(String, String)> {
        let one = |option: &str, recipe: &Recipe| match self.configured(commit, recipe)? {
            Ok(text) => Ok(text),
            Err(why) => Err(anyhow::Error::new(Refusal::new(format!(
                "--{option}: `{}` cannot be configured in `{}`: {why}",
                recipe.base.name(),
                self.tree.dir().display()
            )))),
        };
        output::note("Both configurations are processed");
        Ok((one(GOOD, good)?, one(BAD, bad)?))
    }

    /// Runs Kconfig on a recipe's configuration; returns its result or its error.
    fn configured(&self, commit: &str, recipe: &Recipe) -> anyhow::Result<Result<String, String>> {
        let workspace = self.workspace()?;
        match workspace.configure(&self.store, commit, recipe, &workspace.log(), &self.cancel)? {
            ConfigEnd::Text(text) => Ok(Ok(text)),
            ConfigEnd::Failed(why) => Ok(Err(why)),
            ConfigEnd::Interrupted => bail!("Interrupted; the same command resumes the bisection"),
        }
    }

    /// The links that are candidates, with the configurations known so far; with few differences, all of them.
    fn lay_out(&self, links: &Links) -> anyhow::Result<Vec<(ChainLink, Option<String>)>> {
        let chain = &links.chain;
        let all = chain.switches().len();
        if all > LAID_OUT {
            return Ok(candidates::all(chain).into_iter().map(|link| (link, None)).collect());
        }
        output::note(&format!("Configuring {all} differences one by one"));
        let mut laid = Candidates::new(chain);
        for count in 1..all {
            // A difference that cannot be configured alone is joined with the next.
            if let Ok(text) = self.configured(&links.commit, &self.recipe.link(count, chain.text(count)))? {
                let options = parsed(&text)?;
                laid.add(count, text, options);
            }
        }
        Ok(laid.end().into_iter().map(|(link, text)| (link, Some(text))).collect())
    }

    fn candidate(&self, links: &Links, link: &ChainLink) -> Candidate {
        let all = links.chain.switches().len();
        let name = match link.switched {
            0 => GOOD.to_owned(),
            count if count == all => BAD.to_owned(),
            count => format!("{GOOD}+{count}"),
        };
        Candidate {
            name,
            kernel: format!("{}-{}", self.recipe.name(&links.commit), link.switched),
            settings: Vec::new(),
            identity: None,
            commit: None,
            link: Some(link.clone()),
        }
    }

    /// The configuration of a candidate after Kconfig, or Kconfig's error; kept in the bisection's folder.
    fn resolved(&self, work: &BisectionRun<'_>, index: usize) -> anyhow::Result<Result<String, String>> {
        let candidate = &work.bisection.candidates[index];
        let (Some(link), Some(links)) = (&candidate.link, &self.links) else { bail!("A candidate is not a link") };
        if let Some(text) = read(&work.dir, &candidate.name)? {
            return Ok(Ok(text));
        }
        let made = self.configured(&links.commit, &self.recipe.link(link.switched, links.chain.text(link.switched)))?;
        if let Ok(text) = &made {
            keep(&work.dir, &candidate.name, text)?;
        }
        Ok(made)
    }

    /// The result for a candidate that its options alone decide: it equals another candidate that is built, or it cannot be
    /// tested.
    pub(super) fn decided_by_options(&self, work: &BisectionRun<'_>, index: usize) -> anyhow::Result<Option<Built>> {
        let all = &work.bisection.candidates;
        let name = &all[index].name;
        let new = |outcome, why, kernel| Built {
            commit: name.clone(),
            outcome,
            why,
            seconds: 0.0,
            image_bytes: None,
            log: None,
            kernel,
        };
        let text = match self.resolved(work, index)? {
            Ok(text) => text,
            Err(why) => return Ok(Some(new(BuildOutcome::Failed, Some(why), None))),
        };
        let options = parsed(&text)?;
        for other in all.iter().filter(|other| other.name != *name) {
            let Some(Built { kernel: Some(kernel), .. }) = Built::read(&work.dir, &other.name)? else { continue };
            let Some(text) = read(&work.dir, &other.name)? else { continue };
            if parsed(&text)?.changes(&options).is_empty() && self.is_there(&kernel)? {
                return Ok(Some(new(BuildOutcome::Cached, None, Some(kernel))));
            }
        }
        let stranger = self.links.as_ref().and_then(|links| links.chain.stranger(&options));
        Ok(stranger.map(|option| {
            let value = options.value(&option);
            let why = format!("it has CONFIG_{option}={value}, which neither end has");
            new(BuildOutcome::Failed, Some(why), None)
        }))
    }

    /// Removes the build folder, unless it is to be kept.
    fn done(self, is_kept: bool) {
        if !is_kept {
            self.remove();
        }
    }
}

impl BisectionRun<'_> {
    /// Stores the facts to report about the options at which the change was found.
    fn tell_of_options(&self, builder: &Builder, environment: &Environment<'_>) -> anyhow::Result<()> {
        let search = search(&self.dir, &self.bisection, studies(&self.dir, &self.bisection, &self.cancel)?)?;
        let SearchState::Done(SearchResult::Place(span)) = search.state() else { return Ok(()) };
        let of = |index: usize| &self.bisection.candidates[index];
        let (good, bad) = (of(span.good).name.clone(), of(span.bad).name.clone());
        if Switched::read(&self.dir)?.is_some_and(|known| known.good == good && known.bad == bad) {
            return Ok(());
        }
        let Some(links) = &builder.links else { return Ok(()) };
        let count = |index: usize| of(index).link.as_ref().map_or(0, |link| link.switched);
        let options = |index: usize| -> anyhow::Result<ConfigOptions> {
            let text = builder.resolved(self, index)?;
            parsed(&text.map_err(|why| anyhow::anyhow!("`{}` cannot be configured again: {why}", of(index).name))?)
        };
        let switched: HashSet<&str> = links.chain.switches()[count(span.good)..count(span.bad)]
            .iter()
            .flat_map(|switch| &switch.0)
            .map(|change| change.option.as_str())
            .collect();
        let mut changes = options(span.good)?.changes(&options(span.bad)?);
        changes.sort_by_key(|change| !switched.contains(change.option.as_str()));
        let described = |(index, change): (usize, &OptionChange)| {
            let is_switched = switched.contains(change.option.as_str());
            match index < LOOKED_UP {
                true => links.kconfig.describe(&builder.tree, &links.commit, change, is_switched),
                false => Described::unknown(change, is_switched),
            }
        };
        let functions = self.functions_or_not(&search, environment)?;
        let told = Switched {
            good,
            bad,
            looked: functions.is_some(),
            options: changes.iter().enumerate().map(described).collect(),
            functions: functions.unwrap_or_default(),
        };
        told.write(&self.dir)?;
        Ok(())
    }
}
