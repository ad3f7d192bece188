//! A foreground's work, drawn ahead: the transaction, the blocks it gets and those it changes.
//!
//! Invariant: the draws depend only on the seed and the worker's number, never on time, so the same seed gives the same work.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::choice::{Choosers, below};
use super::job::{Amount, Job, Step};

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Gets a block, counted over all files, and changes it if `change`.
    Get {
        block: u32,
        change: bool,
    },
    /// Writes this many bytes of redo that change no block.
    Redo(u32),
    Commit,
    Rollback,
    Cpu(Duration),
    Think(Duration),
    /// Sorts this many bytes of keys that follow from `seed`.
    Sort {
        bytes: u64,
        seed: u64,
    },
}

/// A transaction's inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transaction {
    /// The index of its kind in the job.
    pub kind: usize,
    pub actions: Vec<Action>,
}

impl Transaction {
    /// Whether it only gets and changes blocks and ends.
    pub fn is_short(&self) -> bool {
        let short = |a: &Action| matches!(a, Action::Get { .. } | Action::Commit | Action::Rollback);
        self.actions.iter().all(short)
    }
}

/// The endless stream of one worker's transactions.
pub struct Stream<'a> {
    job: &'a Job,
    choosers: &'a Choosers,
    random: ChaCha8Rng,
    /// The cumulative weights of the kinds.
    weights: Vec<u64>,
    /// By kind and step: the distribution of a `read`.
    distributions: Vec<Vec<usize>>,
    /// Gets of the current transaction since its last `dirty`: index among the actions, and a coin.
    got: Vec<(usize, u32)>,
}

impl<'a> Stream<'a> {
    pub fn new(job: &'a Job, choosers: &'a Choosers, seed: u64, worker: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(worker);
        let mut sum = 0;
        let mut add = |weight| {
            sum += u64::from(weight);
            sum
        };
        let distribution = |s: &Step| match s {
            Step::Read { choice, .. } => choosers.index(*choice),
            _ => 0,
        };
        Self {
            job,
            choosers,
            random,
            weights: job.transactions.iter().map(|t| add(t.weight)).collect(),
            distributions: job.transactions.iter().map(|t| t.steps.iter().map(distribution).collect()).collect(),
            got: Vec::new(),
        }
    }

    /// Draws the next transaction into `to`.
    pub fn draw(&mut self, to: &mut Transaction) {
        to.actions.clear();
        self.got.clear();
        to.kind = match self.weights[..] {
            // Only one kind: nothing to draw.
            [_] => 0,
            _ => {
                let at = below(self.random.next_u64(), self.weights.last().copied().unwrap_or(0));
                self.weights.partition_point(|w| *w <= at)
            }
        };
        let job = self.job;
        for (i, step) in job.transactions[to.kind].steps.iter().enumerate() {
            self.step(step, self.distributions[to.kind][i], &mut to.actions);
        }
    }

    fn step(&mut self, step: &Step, distribution: usize, actions: &mut Vec<Action>) {
        match *step {
            Step::Read { count, .. } => {
                for _ in 0..count {
                    let block = self.choosers.get(distribution).draw(self.random.next_u64());
                    self.got.push((actions.len(), self.random.next_u32()));
                    actions.push(Action::Get { block, change: false });
                }
            }
            Step::Dirty(amount) => self.dirty(amount, actions),
            Step::Redo { min, max } => {
                let extra = below(self.random.next_u64(), u64::from(max.saturating_sub(min)) + 1);
                actions.push(Action::Redo(min + extra as u32));
            }
            Step::Commit => actions.push(Action::Commit),
            Step::Rollback => actions.push(Action::Rollback),
            Step::Cpu(time) => actions.push(Action::Cpu(time)),
            Step::Think(time) => actions.push(Action::Think(time)),
            Step::Sort(bytes) => actions.push(Action::Sort { bytes, seed: self.random.next_u64() }),
        }
    }

    /// Marks gets as changes: by their coins, so that every choice of this many of them is equally likely. A block got just
    /// before is changed as it is got; a block got before another action is got once more.
    fn dirty(&mut self, amount: Amount, actions: &mut Vec<Action>) {
        let mut chosen = std::mem::take(&mut self.got);
        match amount {
            Amount::Percent(p) => chosen.retain(|(_, coin)| (u64::from(*coin) * 100) >> 32 < u64::from(p)),
            Amount::Count(n) => {
                chosen.sort_unstable_by_key(|(at, coin)| (*coin, *at));
                chosen.truncate(n as usize);
                chosen.sort_unstable();
            }
        }
        let tail = actions.iter().rposition(|a| !matches!(a, Action::Get { .. })).map_or(0, |last| last + 1);
        for (at, _) in &chosen {
            let Action::Get { block, .. } = actions[*at] else { unreachable!("only gets are noted") };
            if *at >= tail {
                actions[*at] = Action::Get { block, change: true };
            } else {
                actions.push(Action::Get { block, change: true });
            }
        }
        chosen.clear();
        self.got = chosen;
    }
}

/// The number of `total` that falls to `worker` of `workers`.
pub fn share(total: u64, worker: usize, workers: usize) -> u64 {
    total / workers as u64 + u64::from((worker as u64) < total % workers as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use crate::job::{Choice, TransactionSpec};
    use bigiron_workload::testing;

    fn job(kinds: &[(u32, &[Step])]) -> Job {
        let mut job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
        if !kinds.is_empty() {
            let spec = |(i, (weight, steps)): (usize, &(u32, &[Step]))| TransactionSpec {
                name: format!("kind{i}"),
                weight: *weight,
                steps: steps.to_vec(),
            };
            job.transactions = kinds.iter().enumerate().map(spec).collect();
        }
        job
    }

    fn draws(job: &Job, seed: u64, worker: u64, count: usize) -> Vec<Transaction> {
        let choosers = Choosers::new(job, seed);
        let mut stream = Stream::new(job, &choosers, seed, worker);
        let draw = |_| {
            let mut t = Transaction::default();
            stream.draw(&mut t);
            t
        };
        (0..count).map(draw).collect()
    }

    fn changes(t: &Transaction) -> usize {
        t.actions.iter().filter(|a| matches!(a, Action::Get { change: true, .. })).count()
    }

    const READ: Step = Step::Read { count: 8, choice: Choice::Zipf(0.9) };

    #[test]
    fn the_default_job_changes_blocks_as_it_gets_them() {
        let all = draws(&job(&[]), 7, 0, 20_000);
        let mut changed = 0;
        for t in &all {
            assert_eq!((t.actions.len(), t.actions[8]), (9, Action::Commit));
            assert!(t.is_short() && t.actions[..8].iter().all(|a| matches!(a, Action::Get { .. })));
            changed += changes(t);
        }
        let gets = 160_000.0;
        // Five standard errors of a binomial share.
        assert!((changed as f64 / gets - 0.3).abs() < 5.0 * (0.3f64 * 0.7 / gets).sqrt(), "{changed}");
    }

    #[test]
    fn a_number_of_changes_is_exact_and_every_get_has_its_chance() {
        let all = draws(&job(&[(1, &[READ, Step::Dirty(Amount::Count(3)), Step::Commit])]), 1, 0, 4_000);
        let mut by_place = [0.0; 8];
        for t in &all {
            assert_eq!(changes(t), 3);
            for (place, a) in by_place.iter_mut().zip(&t.actions) {
                *place += f64::from(u8::from(matches!(a, Action::Get { change: true, .. })));
            }
        }
        let error = (0.375f64 * 0.625 / 4_000.0).sqrt();
        assert!(by_place.iter().all(|n| (n / 4_000.0 - 0.375).abs() < 5.0 * error), "{by_place:?}");
        let more = draws(&job(&[(1, &[READ, Step::Dirty(Amount::Count(30))])]), 1, 0, 1);
        assert_eq!(changes(&more[0]), 8);
    }

    #[test]
    fn what_was_got_earlier_is_got_again_to_be_changed() {
        let cpu = Duration::from_micros(40);
        let steps = [READ, Step::Cpu(cpu), Step::Dirty(Amount::Count(2)), READ, Step::Dirty(Amount::Count(1))];
        for t in draws(&job(&[(1, &steps)]), 1, 0, 100) {
            assert_eq!((t.actions.len(), changes(&t), t.is_short()), (8 + 1 + 2 + 8, 3, false));
            assert_eq!(t.actions[8], Action::Cpu(cpu));
            let Action::Get { block, change: true } = t.actions[9] else { panic!("{t:?}") };
            assert!(t.actions[..8].contains(&Action::Get { block, change: false }));
            assert_eq!(t.actions[11..].iter().filter(|a| matches!(a, Action::Get { change: true, .. })).count(), 1);
        }
    }

    #[test]
    fn kinds_come_by_weight_and_redo_in_its_range() {
        let redo = [Step::Redo { min: 1_200, max: 3_600 }, Step::Commit];
        let all = draws(&job(&[(45, &redo), (55, &[READ])]), 3, 1, 10_000);
        let first = all.iter().filter(|t| t.kind == 0);
        let sizes: Vec<_> = first.clone().map(|t| t.actions[0]).collect();
        assert!((sizes.len() as f64 / 10_000.0 - 0.45).abs() < 0.025, "{}", sizes.len());
        assert!(sizes.iter().all(|a| matches!(a, Action::Redo(1_200..=3_600))));
        // 4,500 draws from 2,401 values: the odds that none is among the lowest 20 are 5e-17.
        assert!(sizes.iter().any(|a| matches!(a, Action::Redo(..1_220))));
        assert!(sizes.iter().any(|a| matches!(a, Action::Redo(3_581..))));
    }

    #[test]
    fn streams_differ_by_seed_and_worker_only() {
        let job = job(&[]);
        assert_eq!(draws(&job, 1, 0, 50), draws(&job, 1, 0, 50));
        assert_ne!(draws(&job, 1, 0, 50), draws(&job, 2, 0, 50));
        assert_ne!(draws(&job, 1, 0, 50), draws(&job, 1, 1, 50));
    }

    #[test]
    fn shares_add_up() {
        assert_eq!((0..8).map(|p| share(3_001, p, 8)).sum::<u64>(), 3_001);
        assert_eq!(share(3_001, 0, 8), 376);
    }
}
