//! Rooms in two JVMs, as VolanoMark has them: one has the server's two threads of each connection, the other those of the users.
//!
//! Invariant: a run that ends successfully has delivered every message; the program checks each on arrival, as bigiron's own workers do.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::spec::{Spec, Topology};
use super::worker_group::RunCost;
use crate::java_program::{JavaProgram, options, programs};
use bigiron_model::clock::Clock;
use bigiron_model::workload::Program;
use bigiron_probe::counters::span;
use bigiron_service::programs::Programs;
use bigiron_sys::launch::Usage;
use bigiron_workload::{Context, WrongData};

/// Runs before the first measured one, in which the JVMs compile what is used often.
const WARM_UP: u32 = 2;

/// Both JVMs, which all runs of a trial use. Dropping it kills them.
pub struct JavaRooms {
    server: JavaProgram,
    users: JavaProgram,
    warm: bool,
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
        Ok(Self { users, server, warm: false })
    }

    /// Runs once, with new connections and threads. The first call runs before that without measuring.
    ///
    /// # Errors
    /// A JVM ended; says why. A wrong message is a [`WrongData`](bigiron_workload::WrongData).
    pub fn run(&mut self) -> Result<RunCost> {
        if !self.warm {
            for _ in 0..WARM_UP {
                self.once(|run| run())?;
            }
            self.warm = true;
        }
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
        let (before, start) = (self.usage(), Instant::now());
        let mut elapsed_ns = 0;
        within(&mut || {
            both(self, "go", "done")?;
            elapsed_ns = start.elapsed().as_nanos() as u64;
            Ok(())
        })?;
        // While the threads are there.
        let after = self.usage();
        both(self, "end", "ended")?;
        let usage = Usage {
            user_ns: after.user_ns - before.user_ns,
            system_ns: after.system_ns - before.system_ns,
            voluntary_switches: after.voluntary_switches - before.voluntary_switches,
            involuntary_switches: after.involuntary_switches - before.involuntary_switches,
            ..Usage::default()
        };
        Ok(RunCost { elapsed_ns, usage })
    }

    /// Why a step failed that one end did not answer: the other may have ended first, and then its connections broke.
    fn cause(&mut self, said: anyhow::Error) -> anyhow::Error {
        if said.is::<WrongData>() {
            return said;
        }
        match [&mut self.server, &mut self.users]
            .into_iter()
            .filter_map(JavaProgram::failed)
            .find(|e| e.is::<WrongData>())
        {
            Some(wrong) => wrong,
            None => said,
        }
    }

    fn usage(&self) -> Usage {
        self.server.usage().and(self.users.usage())
    }
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
    use super::*;
    use bigiron_service::java::{RECIPE, SERIES};
    use bigiron_service::root;
    use bigiron_workload::testing;

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
        let (spec, cx) = (spec(&[]), testing::context(dir.path()));
        let outcome = bigiron_workload::Configured::prepare(&spec, &cx).unwrap().run(&cx).unwrap();
        assert_eq!(outcome.facts["messages-checked"], (2 * 3 * 7 * 3 * 2).to_string());
        assert!(outcome.facts["jvm"].contains("OpenJDK"), "{:?}", outcome.facts);
        assert_eq!(outcome.windows.len(), 2);
        // A message that is relayed wakes a thread.
        assert!(outcome.values["voluntary-switches"] > 50.0, "{:?}", outcome.values);
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
        let error = JavaRooms { server, users, warm: true }.run().unwrap_err();
        assert!(error.is::<WrongData>() && error.to_string().contains("is not as it was sent"), "{error:#}");

        let mut rooms = JavaRooms::start(&spec, &cx).unwrap();
        rooms.run().unwrap();
        let pid = rustix::process::Pid::from_raw(rooms.server.pid() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let error = format!("{:#}", rooms.run().unwrap_err());
        assert!(error.contains("The JVM ended"), "{error}");
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
