//! Rooms in two JVMs, as VolanoMark has them: one has the server's two threads of each connection, the other those of the users.
//!
//! Invariant: a run that ends successfully has delivered every message; the program checks each on arrival, as bigiron's own workers do.

use std::time::Instant;

use anyhow::{Context as _, Error, Result, bail};

use super::spec::{Spec, Topology};
use super::worker_group::RunCost;
use crate::java_program::{JavaProgram, ProgramUsage, options, programs};
use bigiron_model::clock::Clock;
use bigiron_model::workload::Program;
use bigiron_probe::counters::span;
use bigiron_service::programs::Programs;
use bigiron_workload::{Context, WrongData};

/// Messages after which the JVMs have compiled what is used often: under the exact clock, the 80,001st to the 160,000th took 27 µs each, later ones 14.
const WARM_MESSAGES: u64 = 200_000;
/// What an end says whose connections broke.
const BROKEN: &str = "a connection failed";

/// Both JVMs, which all runs of a trial use. Dropping it kills them.
pub struct JavaRooms {
    server: JavaProgram,
    users: JavaProgram,
}

impl JavaRooms {
    /// Starts them; nobody is connected yet.
    ///
    /// # Errors
    /// Java cannot be had, or does not start; includes what it said.
    pub fn start(spec: &Spec, cx: &Context<'_>) -> Result<Self> {
        let programs = programs(cx)?;
        let server = one_end(spec, cx, &programs, "server", 0)?;
        let users = one_end(spec, cx, &programs, "users", port(&server)?)?;
        Ok(Self { users, server })
    }

    /// Runs once without measuring; to be called [`warm_up_runs`] times before the first measured run.
    ///
    /// # Errors
    /// As [`JavaRooms::run`].
    pub fn warm_up(&mut self) -> Result<()> {
        self.once(|run| run()).map(drop)
    }

    /// Runs once, with new connections and threads.
    ///
    /// # Errors
    /// A JVM ended; says why. A wrong message is a [`WrongData`](bigiron_workload::WrongData).
    pub fn run(&mut self) -> Result<RunCost> {
        self.once(|run| {
            span::open(Instant::now);
            let result = run();
            span::close(Instant::now);
            span::cut();
            result
        })
    }

    /// The name and version of the JVMs.
    pub fn version(&self) -> String {
        self.server.version()
    }

    /// Ends both in good order. Returns the methods that their JVMs had compiled.
    ///
    /// # Errors
    /// One does not end as it should.
    pub fn end(self) -> Result<Vec<Program>> {
        let mut methods = self.users.end()?;
        methods.extend(self.server.end()?);
        Ok(methods)
    }

    /// One run; `within` gets the part from the release of the threads until the last has ended its work.
    fn once(&mut self, within: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<()>) -> Result<RunCost> {
        let both = |this: &mut Self, word: &str, answer: &str| {
            let told = this.server.tell(word).and_then(|()| this.users.tell(word));
            let answered = told.and_then(|()| this.users.answer(answer)).and_then(|()| this.server.answer(answer));
            answered.map_err(|e| this.cause(e))
        };
        both(self, "run", "ready")?;
        let before = self.usage();
        let mut elapsed_ns = 0;
        within(&mut || {
            // Here, because `within` also reads counters.
            let start = Instant::now();
            both(self, "go", "done")?;
            elapsed_ns = start.elapsed().as_nanos() as u64;
            Ok(())
        })?;
        // While the threads are there.
        let after = self.usage();
        both(self, "end", "ended")?;
        let [server, users] = [0, 1].map(|end: usize| after[end].since(&before[end]));
        Ok(RunCost { elapsed_ns, usage: server.and(users) })
    }

    /// Why a step failed that one end did not answer: the other may have ended first, and then its connections broke.
    fn cause(&mut self, said: Error) -> Error {
        if said.is::<WrongData>() {
            return said;
        }
        let ends = [&mut self.server, &mut self.users].into_iter().filter_map(JavaProgram::failed);
        first_cause(said, ends.collect())
    }

    fn usage(&self) -> [ProgramUsage; 2] {
        [self.server.usage(), self.users.usage()]
    }
}

/// Runs of `messages` before the first measured one: two at least, because the second uses what the first left, and five at most.
pub fn warm_up_runs(messages: u64) -> u32 {
    WARM_MESSAGES.div_ceil(messages.max(1)).clamp(2, 5) as u32
}

/// Of the failure that was noticed and those of both ends, the one that led to the others: wrong data, or else one other than a broken connection.
fn first_cause(said: Error, ends: Vec<Error>) -> Error {
    let mut all: Vec<Error> = [said].into_iter().chain(ends).collect();
    let wrong = all.iter().position(|e| e.is::<WrongData>());
    let other = || all.iter().position(|e| !format!("{e:#}").contains(BROKEN));
    let first = wrong.or_else(other).unwrap_or(0);
    all.swap_remove(first)
}

/// Where the server listens.
fn port(server: &JavaProgram) -> Result<u64> {
    server.about["port"].as_u64().context("The server reported no port")
}

/// Starts the JVM of one end, `server` or `users`.
fn one_end(spec: &Spec, cx: &Context<'_>, programs: &Programs, end: &str, port: u64) -> Result<JavaProgram> {
    let Topology::Rooms { rooms, users } = spec.shape else { bail!("Java has only rooms") };
    JavaProgram::start(&format!("chat-{end}"), programs, cx, |jar, _| {
        let mut arguments = options(spec.heap_bytes(cx.clock), "Serial", cx.clock == Clock::Wall);
        let jar = jar.display().to_string();
        arguments.extend(["-Xss256k", "-cp", &jar, "bigiron.Chat"].map(str::to_owned));
        let (messages, size, seed) = (spec.rounds(cx.clock), spec.size, cx.seed);
        arguments.extend([
            format!("end={end}"),
            format!("rooms={rooms}"),
            format!("users={users}"),
            format!("messages={messages}"),
            format!("size={size}"),
            format!("seed={seed}"),
            format!("port={port}"),
        ]);
        arguments
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::thread;
    use std::time::Duration;

    use anyhow::anyhow;

    use super::*;
    use bigiron_service::java::{RECIPE, SERIES};
    use bigiron_service::root;
    use bigiron_workload::{Progress, testing};

    fn spec(more: &[(&str, &str)]) -> Spec {
        let small = [("engine", "java"), ("rooms", "2"), ("users", "3"), ("messages", "7"), ("runs", "2")];
        let options = testing::options(&super::super::Chat, small.into_iter().chain(more.iter().copied())).unwrap();
        Spec::parse(&options).unwrap()
    }

    /// Before a test starts Java, its packages are in the cache.
    fn java() -> Programs {
        bigiron_service::java::testing::install();
        let store = bigiron_archive::Store::open().unwrap();
        Programs::of(&RECIPE, &root::ensure(&store, &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap()).unwrap()
    }

    #[test]
    fn all_messages_of_the_rooms_pass_through_two_jvms() {
        java();
        let dir = tempfile::tempdir().unwrap();
        let steps = RefCell::new(Vec::new());
        let progress = |p: Progress<'_>| steps.borrow_mut().push(format!("{} {}/{}", p.step, p.done, p.of));
        let (spec, cx) = (spec(&[]), Context { progress: &progress, ..testing::context(dir.path()) });
        let outcome = bigiron_workload::Configured::prepare(&spec, &cx).unwrap().run(&cx).unwrap();
        // Also before each run that is not measured, which may take as long.
        let warm_up = (0..5).map(|n| format!("warm-up {n}/7"));
        let steps_expected: Vec<_> = warm_up.chain(["run-1 5/7", "run-2 6/7"].map(str::to_owned)).collect();
        assert_eq!(*steps.borrow(), steps_expected);
        assert_eq!(outcome.facts["messages-checked"], (2 * 3 * 7 * 3 * 2).to_string());
        assert!(outcome.facts["jvm"].contains("OpenJDK"), "{:?}", outcome.facts);
        assert_eq!(outcome.windows.len(), 2);
        // A message that is relayed wakes a thread.
        assert!(outcome.values["voluntary-switches"] > 50.0, "{:?}", outcome.values);
    }

    #[test]
    fn longer_runs_warm_up_in_fewer() {
        assert_eq!([1, 40_000, 60_000, 400_000, u64::MAX].map(warm_up_runs), [5, 5, 4, 2, 2]);
    }

    #[test]
    fn a_wrong_message_and_a_killed_jvm_fail_the_run_and_are_named() {
        let programs = java();
        let dir = tempfile::tempdir().unwrap();
        let (spec, cx) = (spec(&[]), testing::context(dir.path()));
        let server = one_end(&spec, &cx, &programs, "server", 0).unwrap();
        let port = port(&server).unwrap();
        let other_filling = Context { seed: cx.seed + 1, ..testing::context(dir.path()) };
        let users = one_end(&spec, &other_filling, &programs, "users", port).unwrap();
        let error = JavaRooms { server, users }.run().unwrap_err();
        assert!(error.is::<WrongData>() && error.to_string().contains("is not as it was sent"), "{error:#}");

        let mut rooms = JavaRooms::start(&spec, &cx).unwrap();
        let (mut outer, mut inner) = (Duration::ZERO, Duration::ZERO);
        let cost = rooms.once(|run| {
            let start = Instant::now();
            // As long as reading counters might take.
            thread::sleep(Duration::from_millis(200));
            let released = Instant::now();
            let result = run();
            (outer, inner) = (start.elapsed(), released.elapsed());
            result
        });
        let elapsed = Duration::from_nanos(cost.unwrap().elapsed_ns);
        assert!(elapsed <= inner && inner < outer, "{elapsed:?} of {inner:?}");
        let pid = rustix::process::Pid::from_raw(rooms.server.pid() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Until it has ended, which a busy machine may delay; it stays unreaped.
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended).unwrap();
        // As the users see it.
        let broken = anyhow!("The JVM ended (exit status: 1): IllegalStateException: {BROKEN}: java.io.EOFException");
        for error in [rooms.cause(broken), rooms.run().unwrap_err()] {
            let error = format!("{error:#}");
            assert!(error.contains("The JVM ended (signal: 9 (SIGKILL))"), "{error}");
        }
    }

    #[test]
    fn the_cause_is_no_broken_connection_if_there_is_another() {
        let broken = |end: &str| anyhow!("The JVM ended: {end}: {BROKEN}: java.io.EOFException").context("In run-1");
        let killed = || anyhow!("The JVM ended (signal: 9 (SIGKILL))");
        let wrong = || Error::from(WrongData("message 3 is not as it was sent".to_owned()));
        let first = |said, ends| format!("{:#}", first_cause(said, ends));
        assert_eq!(first(broken("users"), vec![killed(), broken("users")]), "The JVM ended (signal: 9 (SIGKILL))");
        assert_eq!(first(broken("users"), vec![killed(), wrong()]), "message 3 is not as it was sent");
        assert_eq!(first(killed(), vec![broken("users")]), "The JVM ended (signal: 9 (SIGKILL))");
        assert!(first(broken("users"), vec![broken("server")]).contains("users"));
    }

    #[test]
    fn other_shapes_are_refused() {
        for (name, value, right) in
            [("shape", "groups", "rooms"), ("workers", "processes", "threads"), ("carrier", "pipe", "tcp")]
        {
            let error = testing::options(&super::super::Chat, [("engine", "java"), (name, value)]).unwrap_err();
            assert!(
                error.contains(&format!("`chat.{name}` cannot be `{value}`")) && error.ends_with(&format!("`{right}`")),
                "{error}"
            );
        }
    }
}
