//! `scripts`: users at terminals, each running the same shell commands in its own order in its own home.
//!
//! Invariant: all users do the same work, whatever their order; the correct output of each command is known and checked
//! afterwards.

mod home;
mod spec;
mod tasks;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use self::home::Home;
use self::spec::{AUTO, Spec};
use self::tasks::{ALWAYS, Task};
use bigiron_model::clock::Clock;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_service::program::measured::MeasuredRun;
use bigiron_service::program::outputs::Outputs;
use bigiron_service::program::process_guard::{ProcessGuard, ProgramSet};
use bigiron_service::program::root;
use bigiron_service::program::root::ProgramNeeds;
use bigiron_service::program::succeeded;
use bigiron_service::program::work_folder;
use bigiron_service::program::work_folder::WorkFolder;
use bigiron_sys::load::rng::SplitMix64;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, OptionDef, Progress, Running, RunsOn, Workload, WorkloadResult,
    WrongData,
};

/// The primary metric's name.
const PRIMARY: &str = "scripts-per-hour";
/// Bytes of a home after its script.
const HOME_BYTES: u64 = 3 << 20;
const OTHER_BYTES: u64 = 48 << 20;
/// Maximum memory of a user: a shell and a compiler.
const USER_MEMORY: u64 = 40 << 20;

/// The workload of shell scripts.
pub struct Scripts;

const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "users",
        default: AUTO,
        allowed: &[],
        summary: "Parallel users, or several numbers such as `1,2,4`; `auto`: 2 under the exact clock, 32 on the wall clock",
    },
    OptionDef {
        name: "without",
        default: "",
        allowed: &[],
        summary: "Commands to leave out of the scripts, such as `cc,make,nroff`",
    },
    OptionDef { name: "limit", default: "10m", allowed: &[], summary: "Time limit for all users" },
];

impl Workload for Scripts {
    fn name(&self) -> &'static str {
        "scripts"
    }

    fn summary(&self) -> &'static str {
        "Users running shell scripts of small commands: fork, exec, exit, small files, and a little compiling"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Spec::parse(options)?))
    }
}

impl Configured for Spec {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        if on == RunsOn::Elsewhere { Ok(()) } else { self.runnable() }
    }

    fn needs(&self) -> Needs {
        let points = self.points(Clock::Wall);
        let users = |n: &u32| u64::from(*n);
        Needs {
            storage_bytes: Some(points.iter().map(users).sum::<u64>() * HOME_BYTES + OTHER_BYTES),
            memory_bytes: points.iter().map(users).max().unwrap_or(0).min(MANY) * USER_MEMORY,
            modules: vec!["overlay"],
        }
    }

    fn images(&self, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        let words = ALWAYS.split_whitespace().chain(self.tasks.iter().flat_map(|t| t.needs.iter().map(|(n, _)| *n)));
        let wanted = ProgramNeeds {
            whose: "`scripts`",
            words: words.map(str::to_owned).collect(),
            dir: None,
            find: &work_folder::find,
            roots: &[],
            less: "`scripts.without=cc,make` leaves the compiler out",
        };
        root::of(&wanted, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let per_hour = |name: String, summary: String| MetricDef {
            primary: name == PRIMARY,
            name,
            unit: Unit::named("scripts/h"),
            better: Better::Higher,
            kind: Kind::Throughput,
            summary,
        };
        let peak = "Scripts per hour at the best load point, from the first user's start to the last one's end";
        let mut metrics = vec![per_hour(PRIMARY.to_owned(), peak.to_owned())];
        metrics.extend(self.named_points().iter().map(|n| per_hour(of_point(*n), format!("The same with {n} users"))));
        let cost = |name: &str, unit, kind, summary: &str| MetricDef {
            name: name.to_owned(),
            unit,
            better: Better::Lower,
            kind,
            primary: false,
            summary: summary.to_owned(),
        };
        metrics.extend([
            cost("elapsed", Unit::Ns, Kind::Cost, "Time of all load points together"),
            cost("user", Unit::Ns, Kind::Usage, "CPU time of all processes in user mode"),
            cost("system", Unit::Ns, Kind::Usage, "CPU time of all processes in the kernel"),
            cost("voluntary-switches", Unit::Count, Kind::Usage, "Context switches of a process that waited"),
            cost(
                "involuntary-switches",
                Unit::Count,
                Kind::Usage,
                "Context switches of a process that was still runnable",
            ),
            cost("minor-faults", Unit::Count, Kind::Usage, "Page faults without I/O"),
        ]);
        metrics
    }

    fn silence(&self) -> Duration {
        self.limit
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        let prepared = PreparedUsers::of(self, cx)?;
        prepared.work_folder.make(cx)?;
        for user in prepared.users() {
            let dir = prepared.home_of(user);
            prepared.home.lay_out(&dir)?;
            let path = dir.join("script");
            fs::write(&path, script(&order(self, cx.seed, user.user)))
                .with_context(|| format!("Cannot write {}", path.display()))?;
        }
        Ok(Box::new(prepared))
    }
}

/// Users with their homes.
struct PreparedUsers<'a> {
    spec: &'a Spec,
    /// Users of each load point.
    points: Vec<u32>,
    work_folder: WorkFolder,
    outputs: Outputs,
    home: Home,
}

impl<'a> PreparedUsers<'a> {
    fn of(spec: &'a Spec, cx: &Context<'_>) -> anyhow::Result<Self> {
        let (points, work_folder) = (spec.points(cx.clock), WorkFolder::of(cx, "scripts"));
        Ok(Self { spec, points, work_folder, outputs: Outputs::make(&cx.dir)?, home: Home::new() })
    }

    /// All users of all load points.
    fn users(&self) -> impl Iterator<Item = User> {
        self.points.iter().flat_map(|&users| (1..=users).map(move |user| User { users, user }))
    }

    /// A user's home as this process sees it.
    fn home_of(&self, User { users, user }: User) -> PathBuf {
        self.work_folder.outside().join(format!("{users}/{user}"))
    }

    /// Looks at what every command of a user has left behind.
    fn check(&self, user: User, order: &[&'static Task]) -> anyhow::Result<()> {
        let work = self.home_of(user).join("w");
        for (n, task) in order.iter().enumerate() {
            let path = work.join(folder(n, task)).join("out");
            let who = || format!("User {} of {}, command {} (`{}`)", user.user, user.users, n + 1, task.name);
            let found = fs::read(&path).map_err(|e| WrongData(format!("{} has left nothing: {e}", who())))?;
            let wanted = (task.expect)(&self.home);
            if found != wanted.as_bytes() {
                let same = found.iter().zip(wanted.as_bytes()).take_while(|(a, b)| a == b).count();
                let line = wanted.as_bytes()[..same.min(wanted.len())].iter().filter(|b| **b == b'\n').count() + 1;
                let of =
                    |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().nth(line - 1).unwrap_or_default().to_owned();
                let (is, right) = (of(&found), of(wanted.as_bytes()));
                return Err(
                    WrongData(format!("{}: line {line} of its output is `{is}` instead of `{right}`", who())).into()
                );
            }
        }
        Ok(())
    }
}

impl Running for PreparedUsers<'_> {
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        let Self { spec, points, work_folder, outputs, .. } = self;
        let programs = points.iter().map(|n| work_folder.shell(&all(*n), work_folder.inside()));
        let orders = ProgramSet {
            programs: programs.collect::<anyhow::Result<_>>()?,
            limit: spec.limit,
            outputs: outputs.dir(),
            keep_stdout: true,
            root: work_folder.root().map(PathBuf::from),
        };
        let mut process_guard = ProcessGuard::start(&orders)?;
        let mut runs = Vec::new();
        for (n, users) in points.iter().enumerate() {
            let name = format!("users-{users}");
            (cx.progress)(Progress { step: &name, done: n as u32, of: points.len() as u32 });
            let run = process_guard.measure(n, &name)?;
            succeeded(&run, &format!("The script of one of {users} users"), &name, spec.limit, outputs)?;
            outputs.tidy(&name);
            runs.push((*users, run));
        }
        drop(process_guard);
        outcome(spec, &runs)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> anyhow::Result<()> {
        self.users().try_for_each(|user| self.check(user, &order(self.spec, cx.seed, user.user)))
    }
}

/// Maximum number of users assumed to compile at the same time, so that a guest of a gigabyte suffices.
const MANY: u64 = 12;

fn of_point(users: u32) -> String {
    format!("{PRIMARY}-{users}")
}

/// A user of a load point.
#[derive(Clone, Copy)]
struct User {
    users: u32,
    user: u32,
}

/// A user's commands in his own order: the same for both arms of a pair.
fn order(spec: &Spec, seed: u64, user: u32) -> Vec<&'static Task> {
    let mut tasks = spec.multiset();
    let mut rng = SplitMix64::stream(seed, &format!("scripts {user}"));
    // Fisher–Yates.
    for n in (1..tasks.len()).rev() {
        tasks.swap(n, rng.below(n as u64 + 1) as usize);
    }
    tasks
}

fn folder(n: usize, task: &Task) -> String {
    format!("{:02}-{}", n + 1, task.name)
}

/// A user's shell script: runs each command in its own folder, and stops at the first failure.
fn script(order: &[&'static Task]) -> String {
    let mut text = "set -e\ntrap '[ $? -eq 0 ] || echo \"failed: $T\" >&2' EXIT\ncd w\n".to_owned();
    for (n, task) in order.iter().enumerate() {
        text += &format!("T={}\nmkdir $T\ncd $T\n{}\ncd ..\n", folder(n, task), task.line);
    }
    text
}

/// Starts the users of a load point and waits for all of them; fails if any has failed.
fn all(users: u32) -> String {
    format!(
        "p=; i=0; while [ $i -lt {users} ]; do i=$((i+1)); (cd {users}/$i && exec /bin/sh ./script) & p=\"$p $!\"; done; f=0; for x in $p; do \
         wait $x || f=1; done; exit $f"
    )
}

fn outcome(spec: &Spec, runs: &[(u32, MeasuredRun)]) -> anyhow::Result<WorkloadResult> {
    let mut outcome = WorkloadResult::default();
    let (mut peak, mut at) = (0.0, 0);
    for (users, run) in runs {
        ensure!(run.wall_ns > 0, "The clock did not advance while {users} users worked");
        let per_hour = f64::from(*users) * 3600e9 / run.wall_ns as f64;
        if per_hour > peak {
            (peak, at) = (per_hour, *users);
        }
        if spec.named_points().contains(users) {
            outcome.values.insert(of_point(*users), per_hour);
        }
    }
    outcome.windows.extend(runs.iter().map(|(users, run)| {
        let named = spec.named_points().contains(users).then(|| of_point(*users));
        let peak = (*users == at).then(|| PRIMARY.to_owned());
        Window { metrics: named.into_iter().chain(peak).collect(), operations: u64::from(*users), ns: run.wall_ns }
    }));
    let sum = |of: fn(&MeasuredRun) -> u64| runs.iter().map(|(_, run)| of(run)).sum::<u64>() as f64;
    let values = [
        (PRIMARY, peak),
        ("elapsed", sum(|r| r.wall_ns)),
        ("user", sum(|r| r.user_ns)),
        ("system", sum(|r| r.system_ns)),
        ("voluntary-switches", sum(|r| r.voluntary_switches)),
        ("involuntary-switches", sum(|r| r.involuntary_switches)),
        ("minor-faults", sum(|r| r.minor_faults)),
    ];
    outcome.values.extend(values.map(|(name, value)| (name.to_owned(), value)));
    let tasks =
        spec.tasks.iter().map(|t| if t.times > 1 { format!("{} x{}", t.name, t.times) } else { t.name.to_owned() });
    let facts = [
        ("users", runs.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>().join(" ")),
        ("peak-users", at.to_string()),
        ("commands", tasks.collect::<Vec<_>>().join(", ")),
        ("commands-checked", runs.iter().map(|(n, _)| *n as usize * spec.multiset().len()).sum::<usize>().to_string()),
        ("accounting", runs.first().map_or_else(String::new, |(_, run)| run.accounting.clone())),
    ];
    outcome.facts.extend(facts.map(|(name, value)| (name.to_owned(), value)));
    Ok(outcome)
}
