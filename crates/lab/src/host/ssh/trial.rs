//! One trial on a target, from its boot to its result.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bigiron_model::record::{Failure, HostCost};
use bigiron_model::values::Values;
use sha2::{Digest, Sha256};

use super::connection::TargetError;
use super::{
    HostError, PATIENCE, Phase, RETRY, SshHost, Target, Trial, TrialResult, fatal, notes, payload, way_back, words,
};
use crate::target::messages::{
    BootMethod, BootRequest, BootState, DRY, FinishedOnTarget, Job, Status, TrialEnd, TrialKey, TrialState,
};

/// Maximum number of times that a trial is restarted under a new name.
const MAX_RESTARTS: u32 = 100;

/// How the machine is after a boot was asked for.
enum Booted {
    Up,
    /// Something else is running.
    Other(Box<Status>),
    /// It does not answer.
    Lost(String),
    /// It answers, and the request has not reached it, or has led to nothing.
    NotAsked,
}

/// What was last seen of a machine whose boot is waited for.
enum Seen {
    /// It runs the kernel from before.
    Before,
    /// The connection is refused: it may be up.
    Refused(String),
    Away(String),
}

/// The end of the wait. Only a machine that does not answer is lost: in the other cases the kernel may be well, and the machine is.
fn given_up(name: &str, seen: Seen) -> Result<Booted, HostError> {
    let nothing = "no result is recorded, and no power command is run";
    match seen {
        Seen::Away(why) => Ok(Booted::Lost(why)),
        Seen::Before => Err(HostError::Fatal(format!(
            "`{name}` was told to reboot, and still runs the previous kernel; {nothing}. `systemctl list-jobs` there shows what holds up its shutdown"
        ))),
        Seen::Refused(why) => Err(HostError::Fatal(format!(
            "`{name}` was told to reboot, and now refuses the connection ({why}); {nothing}. `ssh -o BatchMode=yes {name} true` must succeed"
        ))),
    }
}

/// Why a trial has no result that nobody here has ended.
fn ended_there(name: &str, again: u32) -> String {
    if again == MAX_RESTARTS {
        return format!(
            "The trial was ended {} times on `{name}`, so it is not started again; `--fresh` begins a new study",
            MAX_RESTARTS + 1
        );
    }
    format!("The trial was ended on `{name}`, by `bigiron undo` or a signal; the same command continues the study")
}

impl SshHost<'_> {
    pub(super) fn trial(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let begun = Instant::now();
        let mut key = TrialKey {
            study: self.study.clone(),
            slot: trial.slot.slot,
            attempt: trial.attempt,
            purpose: trial.purpose,
            again: 0,
        };
        let mut status: Status = self.ask("status", &key, trial)?;
        // What was broken off, or what the user has mended since, runs under the next name.
        while let TrialState::Done(done) = &status.trial {
            if !matches!(done.end, TrialEnd::Cancelled | TrialEnd::Fatal(_)) || key.again == MAX_RESTARTS {
                break;
            }
            key.again += 1;
            status = self.ask("status", &key, trial)?;
        }
        loop {
            match status.trial {
                TrialState::Done(done) => return self.collect(trial, &key, *done, begun),
                TrialState::Running => self.watch(trial, &key, phase)?,
                TrialState::Died { rebooted } => return self.died(rebooted, status.crash),
                TrialState::Unknown => {
                    if let Some(failed) = self.begin(trial, &key, &status.boot, phase)? {
                        return Ok(failed);
                    }
                }
            }
            status = self.ask("status", &key, trial)?;
        }
    }

    /// The word that proves the trial's boot.
    fn nonce(&self, key: &TrialKey) -> String {
        let digest = Sha256::digest(format!("{} {}", key.study, key.name()));
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Boots the trial's kernel, if it needs a boot, and starts the trial; or the kernel's failure to boot. If the connection was lost before the
    /// target received the request, nothing has begun.
    fn begin(
        &self,
        trial: &Trial<'_>,
        key: &TrialKey,
        boot: &BootState,
        phase: &dyn Fn(Phase),
    ) -> Result<Option<TrialResult>, HostError> {
        let nonce = self.method.map(|_| self.nonce(key));
        if let (Some(method), Some(nonce)) = (self.method, &nonce) {
            let booted = match boot {
                BootState::Up => Booted::Up,
                // As it was found when a killed orchestrator's study was resumed.
                BootState::Other | BootState::GoingDown => self.wait_for_boot(trial, key, false)?,
                BootState::Unknown | BootState::Pending => {
                    phase(Phase::Booting);
                    if let Some(failed) = self.pass_gate(trial)? {
                        return Ok(Some(failed));
                    }
                    self.bring(trial)?;
                    self.prove(method, trial)?;
                    let request = BootRequest {
                        key: key.clone(),
                        demands: self.demands,
                        nonce: nonce.clone(),
                        method,
                        kernel: trial.arm.kernel.clone(),
                        words: words(trial.arm),
                    };
                    self.boot(&request)?;
                    self.wait_for_boot(trial, key, true)?
                }
            };
            match booted {
                Booted::Up => phase(Phase::Up),
                Booted::Other(status) => return Ok(Some(self.did_not_boot(trial, &status))),
                Booted::Lost(why) => return Ok(Some(self.did_not_return(trial, &why))),
                // That is no failure of the kernel: it is asked for again.
                Booted::NotAsked => return Ok(None),
            }
        }
        let job = Job { key: key.clone(), plan: trial.plan.clone(), demands: self.demands, nonce };
        let _: TrialState = self.ask("start", &job, trial)?;
        Ok(None)
    }

    /// Boots the trial's kernel in a VM here, unless that has been done or the user wants none: how it failed, if it did.
    fn pass_gate(&self, trial: &Trial<'_>) -> Result<Option<TrialResult>, HostError> {
        let (Some(gate), Some(kernel)) = (&self.gate, &self.kernels[trial.slot.arm]) else { return Ok(None) };
        if gate.has_passed(kernel) {
            return Ok(None);
        }
        let (name, release) = (self.target.connection.name(), &kernel.identity.release);
        (self.note)(&format!("Booting {release} in a VM here first; `{name}` boots it if that works"));
        let Some((failure, why)) = gate.try_out(kernel, trial.cancel)? else { return Ok(None) };
        self.lose(&format!("{release} did not boot in a VM here, so it was not booted on `{name}`"));
        let message = format!("{release} does not boot in a VM here, so it was not booted on `{name}`: {why}");
        Ok(Some(self.failed(failure, message)))
    }

    /// Asks for a boot.
    fn boot(&self, request: &BootRequest) -> Result<(), HostError> {
        let connection = &self.target.connection;
        let noted = notes::BOOTED.put(connection.name(), "told to reboot");
        noted.map_err(|e| HostError::Fatal(format!("{e:#}")))?;
        match connection.tell("boot", request) {
            // Unreachable: it may have been asked for.
            Ok(()) | Err(TargetError::Unreachable { .. }) => Ok(()),
            Err(other) => Err(fatal(other)),
        }
    }

    /// Copies the trial's kernel to the target, unless it is there.
    fn bring(&self, trial: &Trial<'_>) -> Result<(), HostError> {
        let connection = &self.target.connection;
        connection.tell("prepare", &self.study).map_err(fatal)?;
        let Some(kernel) = &self.kernels[trial.slot.arm] else { return Ok(()) };
        if self.ask::<bool>("has", &kernel.identity, trial)? {
            return Ok(());
        }
        (self.note)(&format!("Copying {} to `{}`", kernel.identity.release, connection.name()));
        let identity = serde_json::to_string(&kernel.identity).expect("an identity is plain data");
        let (reader, writer) = std::io::pipe().map_err(|e| HostError::Fatal(format!("Cannot create a pipe: {e}")))?;
        thread::scope(|scope| {
            let packing = scope.spawn(move || payload::write(kernel, writer));
            let sent = connection.stream("kernel", &[self.study.clone(), identity], reader, Some(trial.cancel));
            let packed = packing.join().expect("no panic is caught");
            if trial.cancel.load(Ordering::Relaxed) {
                return Err(HostError::Cancelled);
            }
            sent.map_err(fatal)?;
            match packed {
                // It was there after all: another connection was bringing it.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                packed => packed.map_err(|e| HostError::Fatal(format!("Cannot read the kernel: {e}"))),
            }
        })
    }

    /// A dry boot of the machine's own kernel, which shows that the boot loader boots an entry once and not for ever.
    fn prove(&self, method: BootMethod, trial: &Trial<'_>) -> Result<(), HostError> {
        let Target { connection, look, .. } = self.target;
        if self.proved.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (name, how) = (connection.name(), method.name());
        let Some(own) = look.image.clone() else {
            return Err(HostError::Fatal(format!("`{name}` has no image of its own kernel for a dry boot by {how}")));
        };
        (self.note)(&format!(
            "Dry boot of `{name}` by {how} into its own kernel, to check that it is not booted again"
        ));
        let key =
            TrialKey { study: format!("{}{DRY}", self.study), slot: 0, attempt: 0, purpose: trial.purpose, again: 0 };
        let request = BootRequest {
            nonce: self.nonce(&key),
            key: key.clone(),
            demands: self.demands,
            method,
            kernel: own,
            words: String::new(),
        };
        self.boot(&request)?;
        match self.wait_for_boot(trial, &key, true)? {
            Booted::Up => {}
            Booted::Other(status) => {
                return Err(HostError::Fatal(format!(
                    "`{name}` did not boot the entry named by {how}, but {}",
                    status.release
                )));
            }
            Booted::NotAsked => {
                return Err(HostError::Fatal(format!("`{name}` did not receive the request for a dry boot by {how}")));
            }
            Booted::Lost(why) => {
                let what = format!("`{name}` did not come back from a dry boot of its own kernel ({why})");
                return Err(HostError::Fatal(format!("{what}. {}", way_back::lost(self.target, &what))));
            }
        }
        connection.tell("prove", &(&key, method)).map_err(fatal)?;
        connection.tell("forget", &key.study).map_err(fatal)?;
        self.proved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the machine has rebooted; `asked`: for a boot that this process has asked for, so that it is not asked for again.
    fn wait_for_boot(&self, trial: &Trial<'_>, key: &TrialKey, asked: bool) -> Result<Booted, HostError> {
        let (since, limit) = (Instant::now(), self.target.config.boot_limit);
        loop {
            if trial.cancel.load(Ordering::Relaxed) {
                return Err(HostError::Cancelled);
            }
            self.target.connection.disconnect();
            let connected = self.target.connection.connect();
            let seen = match connected.and_then(|()| self.target.connection.ask::<Status>("status", key)) {
                Ok(status) => match status.boot {
                    BootState::Up => return Ok(Booted::Up),
                    BootState::Other => return Ok(Booted::Other(Box::new(status))),
                    BootState::Unknown => return Ok(Booted::NotAsked),
                    BootState::Pending if !asked => return Ok(Booted::NotAsked),
                    BootState::Pending | BootState::GoingDown => Seen::Before,
                },
                Err(e) => {
                    let is_refusal = e.is_refusal();
                    match e {
                        TargetError::Unreachable { why, .. } if is_refusal => Seen::Refused(why),
                        TargetError::Unreachable { why, .. } => Seen::Away(why),
                        other => return Err(fatal(other)),
                    }
                }
            };
            if since.elapsed() > limit {
                return given_up(self.target.connection.name(), seen);
            }
            thread::sleep(RETRY);
        }
    }

    /// Passes on a running trial's progress until it ends, or the connection does.
    fn watch(&self, trial: &Trial<'_>, key: &TrialKey, phase: &dyn Fn(Phase)) -> Result<(), HostError> {
        let since = Instant::now();
        let mut child = loop {
            match self.target.connection.follow("wait", key) {
                Ok(child) => break child,
                Err(TargetError::Unreachable { .. }) if since.elapsed() < PATIENCE => self.reconnect(trial)?,
                Err(e) => return Err(self.unreachable(&e)),
            }
        };
        let out = child.stdout.take().expect("it is a pipe");
        let (sender, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        loop {
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => {
                    if let Ok(said) = serde_json::from_str::<Phase>(&line) {
                        phase(said);
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if trial.cancel.load(Ordering::Relaxed) {
                let _ = child.kill();
                let _ = child.wait();
                self.target.connection.tell("stop", key).map_err(fatal)?;
                return Err(HostError::Cancelled);
            }
        }
        // Over, or cut off: the status says which.
        let cut = child.wait().map_or(true, |status| !status.success());
        if cut { self.reconnect(trial) } else { Ok(()) }
    }

    /// Fetches a trial's result and its artefacts.
    fn collect(
        &self,
        trial: &Trial<'_>,
        key: &TrialKey,
        done: FinishedOnTarget,
        begun: Instant,
    ) -> Result<TrialResult, HostError> {
        let name = self.target.connection.name();
        let mut result = match done.end {
            TrialEnd::Ran(result) => *result,
            TrialEnd::Void(why) => return Err(HostError::Void(why)),
            TrialEnd::Fatal(why) => return Err(HostError::Fatal(format!("On `{name}`: {why}"))),
            TrialEnd::Cancelled if trial.cancel.load(Ordering::Relaxed) => return Err(HostError::Cancelled),
            TrialEnd::Cancelled => return Err(HostError::Fatal(ended_there(name, key.again))),
        };
        let key = serde_json::to_string(key).expect("a key is plain data");
        for name in &done.artifacts {
            bigiron_model::folder_files::plain_name(name).map_err(HostError::Fatal)?;
            let args = [key.clone(), name.clone()];
            let bytes = self.target.connection.stream("artifact", &args, std::io::empty(), None).map_err(fatal)?;
            fs::write(trial.artifacts.join(name), bytes)
                .map_err(|e| HostError::Fatal(format!("Cannot keep {name}: {e}")))?;
        }
        self.describe(&mut result, begun);
        Ok(result)
    }

    fn describe(&self, result: &mut TrialResult, begun: Instant) {
        "ssh".clone_into(&mut result.cost.accelerator);
        result.cost.wall_s = begun.elapsed().as_secs_f64();
        if let Some(method) = self.method {
            result.facts.insert("machine.booted by".to_owned(), method.name().to_owned());
        }
    }

    /// A trial that ended without a result.
    fn died(&self, rebooted: bool, crash: Option<String>) -> Result<TrialResult, HostError> {
        if !rebooted {
            return Err(HostError::Void(match crash {
                Some(wrote) => format!("The trial's process ended on the target without a result: {wrote}"),
                None => "The trial's process was killed on the target".to_owned(),
            }));
        }
        match crash {
            Some(crash) => Ok(self.failed(
                Failure::Panic,
                format!("The machine rebooted during the trial; the last lines of its kernel's log:\n{crash}"),
            )),
            // Its kernel reboots when it panics.
            None if self.method.is_some() => {
                Ok(self.failed(Failure::Panic, "The machine rebooted during the trial".to_owned()))
            }
            None => Err(HostError::Void("The machine rebooted during the trial".to_owned())),
        }
    }

    /// The machine has come up with something else.
    fn did_not_boot(&self, trial: &Trial<'_>, status: &Status) -> TrialResult {
        let (name, release) = (self.target.connection.name(), &trial.arm.kernel.release);
        let mut message = format!(
            "{release} did not come up: after its boot `{name}` runs {}, which the boot loader started",
            status.release
        );
        if let Some(crash) = &status.crash {
            message.push_str(&format!("; the last lines of its log:\n{crash}"));
        }
        self.lose(&format!("{release} did not boot on `{name}`; the same command continues with the remaining trials"));
        let failure = if status.crash.is_some() { Failure::Panic } else { Failure::NoAgent };
        self.failed(failure, message)
    }

    /// The machine does not answer.
    fn did_not_return(&self, trial: &Trial<'_>, why: &str) -> TrialResult {
        let (name, release) = (self.target.connection.name(), &trial.arm.kernel.release);
        let limit = self.target.config.boot_limit.as_secs();
        let what = format!("`{name}` did not come back within {limit} s of the boot of {release} ({why})");
        let done = way_back::lost(self.target, &what);
        self.lose(&format!("{what}. {done}"));
        self.failed(Failure::Hang, format!("{what}. {done}"))
    }

    fn failed(&self, failure: Failure, message: String) -> TrialResult {
        let mut result = TrialResult {
            failure: Some((failure, message)),
            guest: None,
            metrics: Values::default(),
            facts: std::collections::BTreeMap::new(),
            environment: std::collections::BTreeMap::new(),
            counters: None,
            changes: Vec::new(),
            complaints: Vec::new(),
            cost: HostCost::default(),
            evidence: None,
        };
        self.describe(&mut result, Instant::now());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_does_not_answer_is_lost() {
        let away = given_up("db3", Seen::Away("Connection timed out".to_owned())).unwrap();
        assert!(matches!(away, Booted::Lost(why) if why == "Connection timed out"));
        let denied = Seen::Refused("root@db3: Permission denied (publickey).".to_owned());
        for (seen, want) in [(Seen::Before, "still runs the previous kernel"), (denied, "Permission denied")] {
            let Err(HostError::Fatal(why)) = given_up("db3", seen) else {
                panic!("{want}: the machine counts as lost")
            };
            assert!(why.contains(want) && why.contains("no result is recorded"), "{why}");
        }
    }

    #[test]
    fn a_trial_that_was_ended_too_often_is_not_continued() {
        assert!(ended_there("db3", 0).ends_with("the same command continues the study"));
        assert!(ended_there("db3", MAX_RESTARTS).contains("ended 101 times"));
    }
}
