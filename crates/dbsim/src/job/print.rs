//! Prints a job as the text of a job file.
//!
//! Invariant: the printed text parses to the same job. Default values are omitted if they do not depend on other keys.

use super::draft::{VERSION, default_cache, default_journal};
use super::keys::{CACHE, DATA, JOURNAL, KINDS, PHASE, RUN, TRANSACTION};
use super::{ClassSpec, Job, Length, RunSpec};
use bigiron_workload::keys::form::quoted;
use bigiron_workload::keys::print as lines;

/// The text of a job file that describes `job`.
pub fn print(job: &Job) -> String {
    let mut out = format!("dbsim = {VERSION}\nname = {}\n", quoted(&job.name));
    // A table without keys is omitted.
    let mut table = |name: String, lines: String| {
        if !lines.is_empty() {
            out.push_str(&format!("\n[{name}]\n{lines}"));
        }
    };
    // With phases the window's length is their sum.
    let length = if job.run.phases.is_empty() { job.run.length } else { Length::Auto };
    table("run".to_owned(), lines(RUN.iter(), &RunSpec { length, ..job.run.clone() }));
    for phase in &job.run.phases {
        table(format!("phase.{}", phase.name), lines(PHASE.iter(), phase));
    }
    if job.cache != default_cache(job.transactors() > 0) {
        table("cache".to_owned(), lines(CACHE.iter(), &job.cache));
    }
    table("data".to_owned(), lines(DATA.iter(), &job.data));
    if job.journal != default_journal(job.data.direct) {
        table("journal".to_owned(), lines(JOURNAL.iter(), &job.journal));
    }
    for transaction in &job.transactions {
        table(format!("transaction.{}", transaction.name), lines(TRANSACTION.iter(), transaction));
    }
    for of in &job.classes {
        table(format!("process.{}", of.name), class(of));
    }
    out
}

fn class(class: &ClassSpec) -> String {
    let word = class.kind.word();
    let mut text = format!("kind = {}\n", quoted(word));
    for def in KINDS.iter().filter(|def| def.word() == word) {
        text.push_str(&lines(def.class(), class));
        text.push_str(&lines(def.kind(), &class.kind));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::step_text::tests::{choices, steps};
    use super::super::*;
    use super::print;
    use bigiron_workload::keys::form::Word;

    fn pick<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
        proptest::sample::select(all.to_vec())
    }

    fn words<W: Word + std::fmt::Debug>() -> impl Strategy<Value = W> {
        pick(&W::ALL.iter().map(|(_, value)| *value).collect::<Vec<_>>())
    }

    fn engines() -> impl Strategy<Value = Engine> {
        (words::<Method>(), 1usize..=4096, 1usize..=4096, any::<[bool; 3]>()).prop_map(
            |(method, depth, batch, [registered, sqpoll, iopoll])| Engine {
                method,
                depth,
                batch,
                registered,
                sqpoll,
                iopoll,
            },
        )
    }

    fn times() -> impl Strategy<Value = Duration> {
        (0u64..1_000_000).prop_map(Duration::from_micros)
    }

    fn paces() -> impl Strategy<Value = Pace> {
        prop_oneof![
            times().prop_map(|think| Pace::Closed { think }),
            (0.001f64..1e6, any::<bool>()).prop_map(|(per_second, poisson)| Pace::Open { per_second, poisson }),
        ]
    }

    fn kinds() -> impl Strategy<Value = ClassKind> {
        let request = || (1usize..=8192).prop_map(|n| n * 512);
        let limit = || proptest::option::of(1u64..1 << 40);
        let requests = (
            engines(),
            request(),
            choices(),
            0u32..=100,
            any::<[bool; 4]>(),
            0u32..100,
            proptest::option::of(1u64..1 << 30),
            proptest::option::of((0usize..10, 0usize..10).prop_map(|(a, b)| (a.min(b), a.max(b)))),
        );
        prop_oneof![
            Just(ClassKind::Foreground),
            (engines(), 1usize..=32768, times(), words::<Wake>()).prop_map(|(engine, n, group_wait, wake)| {
                ClassKind::LogWriter { engine, group_bytes: n * 512, group_wait, wake }
            }),
            (engines(), 1usize..=4096, any::<bool>()).prop_map(|(engine, batch, sorted)| ClassKind::DatabaseWriter {
                engine,
                batch,
                sorted
            }),
            (1u32..100).prop_map(|percent| ClassKind::Checkpointer { percent }),
            (engines(), request(), any::<bool>(), proptest::option::of(1u64..1000)).prop_map(
                |(engine, request, direct, per)| {
                    ClassKind::Scanner {
                        engine,
                        request,
                        direct,
                        work: per.map_or(WorkShare::Free, WorkShare::PerTransactions),
                    }
                }
            ),
            (request(), limit())
                .prop_map(|(request, bytes_per_second)| ClassKind::Archiver { request, bytes_per_second }),
            (256u64..1 << 20, 16u64..1 << 20, request()).prop_map(|(b, m, request)| ClassKind::Sorter {
                bytes: b * 4096,
                memory: m * 4096,
                request
            }),
            (engines(), request(), 256u64..1 << 20).prop_map(|(engine, request, n)| ClassKind::Loader {
                engine,
                request,
                bytes: n * 4096
            }),
            (request(), limit())
                .prop_map(|(request, bytes_per_second)| ClassKind::Backup { request, bytes_per_second }),
            (0usize..1 << 20, 1u64..1000)
                .prop_map(|(touch, ms)| ClassKind::Idle { touch, every: Duration::from_millis(ms) }),
            (words::<Transport>(), 1usize..1 << 20, 1usize..1 << 20)
                .prop_map(|(transport, request, reply)| ClassKind::Client { transport, request, reply }),
            requests.prop_map(
                |(
                    engine,
                    bytes,
                    choice,
                    read_percent,
                    [random, direct, dsync, verify],
                    fdatasync_every,
                    count,
                    files,
                )| {
                    ClassKind::Requests(RequestSpec {
                        engine,
                        bytes,
                        random,
                        choice,
                        files,
                        read_percent,
                        direct,
                        dsync,
                        fdatasync_every,
                        verify,
                        count,
                    })
                }
            ),
        ]
    }

    /// Jobs with values that a file can have, whether or not they are valid together.
    fn jobs() -> impl Strategy<Value = Job> {
        let class = (1usize..=20_000, any::<bool>(), paces(), kinds()).prop_map(|(count, threads, pace, kind)| {
            let paced = matches!(kind, ClassKind::Foreground | ClassKind::Client { .. } | ClassKind::Requests(_));
            let pace = if paced { pace } else { Pace::Closed { think: Duration::ZERO } };
            ClassSpec { name: String::new(), count, threads, pace, kind }
        });
        let classes = proptest::collection::vec(class, 0..6).prop_map(|mut classes| {
            for (i, class) in classes.iter_mut().enumerate() {
                class.name = format!("class-{i}");
            }
            classes
        });
        let transactions = proptest::collection::vec((1u32..1000, proptest::collection::vec(steps(), 0..6)), 0..4)
            .prop_map(|all| {
                let named = all.into_iter().enumerate();
                named.map(|(i, (weight, steps))| TransactionSpec { name: format!("t{i}"), weight, steps }).collect()
            });
        let lengths = || {
            prop_oneof![
                (1u64..1 << 30).prop_map(Length::Transactions),
                (1u64..100_000).prop_map(|ms| Length::Time(Duration::from_millis(ms)))
            ]
        };
        let run = (
            proptest::option::of(lengths()),
            proptest::option::of(lengths()),
            proptest::collection::vec((1u64..9999, proptest::option::of(paces())), 0..3),
            proptest::option::of(prop_oneof!["tcp:[a-z]{1,8}:[1-9][0-9]{0,3}", "/[a-z]{1,9} [a-z]{1,9}"]),
            pick(&[Wire::Loopback, Wire::Veth]),
        )
            .prop_map(|(length, ramp, phases, acks, network)| {
                let phases: Vec<_> = phases
                    .into_iter()
                    .enumerate()
                    .map(|(i, (n, pace))| PhaseSpec { name: format!("p{i}"), length: Length::Transactions(n), pace })
                    .collect();
                let sum = phases.iter().map(|p| if let Length::Transactions(n) = p.length { n } else { 0 }).sum();
                let length = if phases.is_empty() { length.unwrap_or(Length::Auto) } else { Length::Transactions(sum) };
                RunSpec { length, ramp, phases, acks: acks.map(|to| to.parse().unwrap()), network }
            });
        let memory = prop_oneof![
            pick(&[Memory::Mmap, Memory::Thp, Memory::Sysv]),
            pick(&[1u64 << 21, 1 << 30]).prop_flat_map(|n| pick(&[
                Memory::Huge(n),
                Memory::SysvHuge(n),
                Memory::Hugetlbfs(n)
            ])),
        ];
        let cache = (1u64..1 << 20, memory, words::<Replacement>(), 1u32..=90, any::<bool>()).prop_map(
            |(n, memory, replacement, dirty_percent, prefault)| {
                let bytes = n << 20;
                CacheSpec { bytes, memory, replacement, dirty_percent, prefault }
            },
        );
        let places = pick(&[vec![], vec!["/mnt/a b".into()], vec!["/dev/vdb".into(), "x\"y".into()]]);
        let data = (1usize..=64, 1u64..1000, any::<[bool; 2]>(), words::<DataSync>(), places).prop_map(
            |(files, n, [direct, dontcache], sync, places)| DataSpec {
                files,
                bytes: (files as u64 * n) << 20,
                direct,
                dontcache,
                sync,
                places,
            },
        );
        let journal = (2usize..=64, 1u64..1000, any::<bool>(), words::<LogSync>(), 9u32..=16, any::<bool>()).prop_map(
            |(files, n, direct, sync, block, place)| JournalSpec {
                files,
                bytes: n << 20,
                direct,
                sync,
                block: 1 << block,
                place: place.then(|| "/redo".into()),
            },
        );
        (run, cache, data, journal, transactions, classes).prop_map(
            |(run, cache, data, journal, transactions, classes)| Job {
                name: "a-job".to_owned(),
                run,
                cache,
                data,
                journal,
                transactions,
                classes,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(job in jobs()) {
            let text = print(&job);
            let read = Draft::parse("x", &text).unwrap().unchecked();
            prop_assert_eq!(read, Ok(job), "{}", text);
        }
    }

    #[test]
    fn shipped_jobs_read_back() {
        for shipped in shipped::LIBRARY.shipped {
            let job = draft(shipped.name).unwrap().job().unwrap();
            assert_eq!(Draft::parse("x", &print(&job)).unwrap().job(), Ok(job));
        }
    }
}
