//! Modelled cycles of a line's window, and whether its verdict depends on the processor.
//!
//! Path length and each set of penalties give an order of the arms. If they all agree, the verdict is robust: no weights between them would reverse it.
//!
//! Invariant: the line's estimate and verdict are those of the clock; nothing here changes them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::window::{self, WindowEvidence};
use super::{Comparison, Judgement};
use bigiron_model::evidence::Evidence;
use bigiron_model::modelled::{Component, PROCESSORS, Processor, places};
use bigiron_model::plan::Plan;
use bigiron_stats::student::Student;

/// Maximum number of functions kept; those whose cycles differ most.
const FUNCTIONS: usize = 40;

/// A difference below this part of an operation has no sign, because sampling a window leaves that much uncertainty.
const UNDECIDED: f64 = 0.002;

/// Path length and models that do not all agree are too close to call if none of them changes by more than this, whatever its spread.
const SMALL: f64 = 0.01;

/// Standard deviation of a pair's modelled change that is assumed where there are too few pairs to tell. Measured: 50 operations of `micro` in
/// eight boots of one kernel, in which it was 0.3 to 6.2 %, at most 5 % in 47 of them; layouts of memory and samples differ.
const ASSUMED_SD: f64 = 0.05;

/// Pairs from which on their own spread is used.
const ENOUGH_PAIRS: usize = 4;

/// Whether path length and every set of penalties agree on which arm takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// They all name the same arm, and none by less than its pairs vary.
    Robust,
    /// Some name the other arm, or neither.
    Depends,
    /// The same, but none of them changes by more than boots of one kernel may differ.
    TooSmall,
}

impl Agreement {
    /// Of path length and the models, each with the largest change that may be chance.
    fn of(measures: &[Measure]) -> Self {
        let first = sign(measures[0].a, measures[0].b);
        if first != 0 && measures.iter().all(|m| sign(m.a, m.b) == first && m.exceeds(m.spread.unwrap_or(0.0))) {
            Self::Robust
        } else if !measures.iter().any(|m| m.exceeds(m.chance())) {
            Self::TooSmall
        } else {
            Self::Depends
        }
    }
}

/// What path length or a model says of both arms.
struct Measure {
    a: f64,
    b: f64,
    /// Half the 95 % interval of the pairs' relative changes, if there are enough pairs.
    spread: Option<f64>,
    /// The same for as many pairs as there are, by the spread that is assumed.
    assumed: f64,
}

impl Measure {
    /// Of the pairs' relative changes, whose standard deviation is assumed to be `sd` where they do not tell.
    fn new(a: f64, b: f64, changes: &[f64], sd: f64) -> Self {
        let own = (changes.len() >= ENOUGH_PAIRS).then(|| Student::new(changes).interval(0.05)).flatten();
        let spread = own.map(|(low, high)| (high - low) / 2.0);
        Self { a, b, spread, assumed: 2.0 * sd / (changes.len() as f64).sqrt() }
    }

    /// The largest relative change that may be chance.
    fn chance(&self) -> f64 {
        self.spread.unwrap_or(self.assumed).max(SMALL)
    }

    /// Whether the arms differ by more than this part.
    fn exceeds(&self, part: f64) -> bool {
        (self.b - self.a).abs() > part * self.a.abs()
    }
}

/// Cycles per operation of both arms under one set of penalties, as means over the pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cycles {
    pub processor: &'static str,
    #[serde(rename = "baseline_cycles")]
    pub a: f64,
    #[serde(rename = "arm_cycles")]
    pub b: f64,
    pub components: Vec<ComponentCycles>,
}

/// A component of the cycles; waiting, which executes no instructions, is one too.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComponentCycles {
    pub component: &'static str,
    #[serde(rename = "baseline_cycles")]
    pub a: f64,
    #[serde(rename = "arm_cycles")]
    pub b: f64,
}

impl Cycles {
    /// The relative change from A to B.
    pub fn change(&self) -> f64 {
        self.b / self.a - 1.0
    }
}

/// Cycles per operation of a function under the first set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionCycles {
    pub function: String,
    #[serde(rename = "baseline_cycles")]
    pub a: f64,
    #[serde(rename = "arm_cycles")]
    pub b: f64,
    /// The component that changed most.
    pub mostly: &'static str,
}

/// The model's results for a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Modelled {
    /// One entry for each set of penalties, in the order of [`PROCESSORS`].
    pub processors: Vec<Cycles>,
    /// The functions that differ most under the first set; empty where they are not asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCycles>,
    pub agreement: Agreement,
}

/// The model's results for the window of a metric, whether its line differs or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelledWindow {
    /// Index into the judgement's comparisons.
    #[serde(skip)]
    pub comparison: usize,
    pub workload: String,
    pub metric: String,
    /// Number of modelled pairs.
    pub pairs: usize,
    /// Nanoseconds of each arm per operation on the clock.
    #[serde(rename = "baseline_ns")]
    pub a: f64,
    #[serde(rename = "arm_ns")]
    pub b: f64,
    #[serde(flatten)]
    pub of: Modelled,
}

/// All windows that were modelled in both arms of a pair: by comparison, primaries first, then in the plan's order.
pub fn windows(plan: &Plan, judgement: &Judgement, evidence: &[Evidence]) -> Vec<ModelledWindow> {
    let of = |(index, comparison): (usize, &Comparison)| {
        let (primaries, others): (Vec<_>, Vec<_>) = comparison.lines.iter().partition(|l| l.metric.primary);
        let lines = primaries.into_iter().chain(others);
        let each = lines.filter_map(|line| {
            let pairs = window::pairs(plan, comparison.arm, (&line.workload, &line.metric.name), evidence);
            let modelled = of_pairs(&pairs)?;
            let mean = |arm: usize| {
                let each = pairs.iter().map(|pair| pair[arm].window).map(|w| w.ns as f64 / w.operations as f64);
                each.sum::<f64>() / pairs.len() as f64
            };
            Some(ModelledWindow {
                comparison: index,
                workload: line.workload.clone(),
                metric: line.metric.name.clone(),
                pairs: pairs.len(),
                a: mean(0),
                b: mean(1),
                of: Modelled { functions: Vec::new(), ..modelled },
            })
        });
        each.collect::<Vec<_>>()
    };
    judgement.comparisons.iter().enumerate().flat_map(of).collect()
}

/// Instructions and counts per operation, by function.
type Costs<'a> = BTreeMap<&'a str, [Cost; 2]>;

#[derive(Clone, Default)]
struct Cost {
    instructions: f64,
    /// Indexed by place, in this version's order.
    counts: Vec<f64>,
}

/// What both arms executed per operation, as means over pairs.
struct Mean<'a> {
    costs: Costs<'a>,
    ns: [f64; 2],
    waiting_ns: [f64; 2],
}

impl<'a> Mean<'a> {
    fn of(pairs: &[[WindowEvidence<'a>; 2]], today: &[String]) -> Self {
        let each = 1.0 / pairs.len() as f64;
        let mut mean = Self { costs: Costs::new(), ns: [0.0; 2], waiting_ns: [0.0; 2] };
        for pair in pairs {
            for (arm, WindowEvidence { window, evidence }) in pair.iter().enumerate() {
                let places = &evidence.places;
                let weight = each / window.operations as f64;
                let place = |at: u8| today.iter().position(|name| places.get(usize::from(at)) == Some(name));
                let known: Vec<Option<usize>> = (0..places.len().min(256)).map(|at| place(at as u8)).collect();
                let mut instructions = 0.0;
                for (function, count) in &window.functions {
                    instructions += *count as f64;
                    mean.costs.entry(function).or_default()[arm].instructions += weight * *count as f64;
                }
                for (function, counts) in &window.modelled {
                    let cost = &mut mean.costs.entry(function).or_default()[arm].counts;
                    cost.resize(today.len(), 0.0);
                    for (at, count) in counts {
                        if let Some(place) = known.get(usize::from(*at)).copied().flatten() {
                            cost[place] += weight * *count as f64;
                        }
                    }
                }
                mean.ns[arm] += weight * window.ns as f64;
                mean.waiting_ns[arm] += weight * (window.ns as f64 - instructions).max(0.0);
            }
        }
        mean
    }

    fn cycles(&self) -> Vec<Cycles> {
        PROCESSORS.iter().map(|p| cycles(p, &self.costs, self.waiting_ns)).collect()
    }
}

/// The model's results for a window; `None` unless today's model ran in both arms of all pairs: the counts of an earlier one lack events, without
/// which an arm would cost too little.
pub(crate) fn of_pairs(pairs: &[[WindowEvidence<'_>; 2]]) -> Option<Modelled> {
    let today = places();
    let is_modelled = |of: &WindowEvidence<'_>| {
        !of.window.modelled.is_empty() && today.iter().all(|place| of.evidence.places.contains(place))
    };
    if pairs.is_empty() || !pairs.iter().flatten().all(is_modelled) {
        return None;
    }
    let all = Mean::of(pairs, &today);
    let processors = all.cycles();
    // The changes of path length, then of each processor, by pair.
    let mut changes = vec![Vec::new(); 1 + processors.len()];
    for pair in pairs {
        let one = Mean::of(std::slice::from_ref(pair), &today);
        changes[0].push(one.ns[1] / one.ns[0] - 1.0);
        changes[1..].iter_mut().zip(one.cycles()).for_each(|(changes, cycles)| changes.push(cycles.change()));
    }
    let path = Measure::new(all.ns[0], all.ns[1], &changes[0], 0.0);
    let model = |(c, changes): (&Cycles, &Vec<f64>)| Measure::new(c.a, c.b, changes, ASSUMED_SD);
    let measures: Vec<_> = std::iter::once(path).chain(processors.iter().zip(&changes[1..]).map(model)).collect();
    Some(Modelled { functions: functions(&PROCESSORS[0], &all.costs), agreement: Agreement::of(&measures), processors })
}

/// The arm that takes longer: -1 for A, 1 for B, 0 for neither.
fn sign(a: f64, b: f64) -> i8 {
    match b - a {
        d if d.abs() <= UNDECIDED * a.abs() => 0,
        d if d > 0.0 => 1,
        _ => -1,
    }
}

fn components(processor: &Processor, cost: &Cost) -> [f64; Component::ALL.len()] {
    processor.components(cost.instructions, |place| cost.counts.get(place).copied().unwrap_or(0.0))
}

fn cycles(processor: &Processor, costs: &Costs<'_>, waiting: [f64; 2]) -> Cycles {
    let mut sums = [[0.0; Component::ALL.len()]; 2];
    for both in costs.values() {
        for (sum, cost) in sums.iter_mut().zip(both) {
            sum.iter_mut().zip(components(processor, cost)).for_each(|(sum, cycles)| *sum += cycles);
        }
    }
    let part = |component, a, b| ComponentCycles { component, a, b };
    let mut all: Vec<_> =
        Component::ALL.iter().map(|c| part(c.name(), sums[0][*c as usize], sums[1][*c as usize])).collect();
    let [a, b] = waiting.map(|ns| ns * processor.ghz);
    all.push(part(super::causes::WAITING, a, b));
    all.retain(|part| part.a != 0.0 || part.b != 0.0);
    let (a, b) = all.iter().fold((0.0, 0.0), |(a, b), part| (a + part.a, b + part.b));
    Cycles { processor: processor.name, a, b, components: all }
}

fn functions(processor: &Processor, costs: &Costs<'_>) -> Vec<FunctionCycles> {
    let mut all: Vec<FunctionCycles> = costs
        .iter()
        .map(|(function, both)| {
            let [a, b] = [0, 1].map(|arm| components(processor, &both[arm]));
            let difference = |c: &&Component| (b[**c as usize] - a[**c as usize]).abs();
            let mostly = Component::ALL.iter().max_by(|x, y| difference(x).total_cmp(&difference(y)));
            FunctionCycles {
                function: (*function).to_owned(),
                a: a.iter().sum(),
                b: b.iter().sum(),
                mostly: mostly.map_or("", |c| c.name()),
            }
        })
        .collect();
    let difference = |f: &FunctionCycles| (f.b - f.a).abs();
    all.sort_by(|x, y| difference(y).total_cmp(&difference(x)).then_with(|| x.function.cmp(&y.function)));
    all.retain(|f| f.a != f.b);
    all.truncate(FUNCTIONS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::evidence::Executed;
    use bigiron_model::modelled::{Event, Geometry};

    /// A window of ten operations in which `f` executes `instructions`, with counts by place.
    fn window(instructions: u64, ns: u64, counts: &[(usize, u64)]) -> Executed {
        Executed {
            workload: "micro".to_owned(),
            metric: "m".to_owned(),
            operations: 10,
            ns,
            functions: vec![("f".to_owned(), instructions)],
            calls: Vec::new(),
            modelled: vec![("f".to_owned(), counts.iter().map(|(at, n)| (*at as u8, *n)).collect())],
        }
    }

    fn of(places: Vec<String>) -> Evidence {
        Evidence { places, ..crate::fixture::evidence(0, Vec::new()) }
    }

    /// Counts in which `event` happened `count` times in each geometry.
    fn everywhere(event: Event, count: u64) -> Vec<(usize, u64)> {
        (0..Geometry::ALL.len()).map(|geometry| (event.at(geometry), count)).collect()
    }

    fn modelled(a: &Executed, b: &Executed) -> Option<Modelled> {
        let evidence = &of(places());
        of_pairs(&[[a, b].map(|window| WindowEvidence { window, evidence })])
    }

    #[test]
    fn what_every_set_says_is_robust_and_what_only_some_say_is_not() {
        let a = window(10_000, 10_000, &[(0, 0)]);
        let more = modelled(&a, &window(11_000, 11_000, &[(0, 0)])).unwrap();
        assert_eq!(more.agreement, Agreement::Robust);
        assert_eq!(
            (more.processors.len(), more.processors[0].a, more.processors[0].b),
            (PROCESSORS.len(), 500.0, 550.0)
        );
        assert_eq!((more.functions[0].function.as_str(), more.functions[0].mostly), ("f", "instructions"));
        // Fewer instructions, but misses that cost more than these save.
        let traded = window(9_000, 9_000, &everywhere(Event::DataMemory, 50));
        let traded = modelled(&a, &traded).unwrap();
        assert!(traded.agreement == Agreement::Depends && traded.processors.iter().all(|c| c.change() > 0.5));
        assert_eq!(traded.functions[0].mostly, "data");
        // Slower only without a prefetcher.
        let stream = window(9_000, 9_000, &everywhere(Event::StreamMemory, 30));
        let stream = modelled(&a, &stream).unwrap();
        assert!(
            stream.agreement == Agreement::Depends
                && stream.processors[0].change() < 0.0
                && stream.processors[1].change() > 0.0
        );
    }

    #[test]
    fn waiting_is_a_part_and_too_small_a_difference_is_none() {
        let a = window(10_000, 110_000, &[(0, 0)]);
        let longer = modelled(&a, &window(10_000, 210_000, &[(0, 0)])).unwrap();
        assert_eq!(longer.agreement, Agreement::Robust);
        let waiting = longer.processors[0].components.last().unwrap();
        assert_eq!((waiting.component, waiting.a), ("waiting", 33_000.0));
        let agreement = |b: &Executed| modelled(&a, b).unwrap().agreement;
        assert_eq!(agreement(&window(10_001, 110_100, &[(0, 0)])), Agreement::TooSmall);
        // What path length does not see is no small matter.
        let misses = window(10_000, 110_000, &everywhere(Event::DataMemory, 200));
        assert_eq!(agreement(&misses), Agreement::Depends);
    }

    #[test]
    fn what_boots_of_one_kernel_differ_by_is_too_small() {
        let evidence = &of(places());
        let windows =
            [10_000, 10_200, 10_400, 9_900, 9_800, 10_300, 10_100, 10_000].map(|n| window(n, 10_000, &[(0, 0)]));
        let pair = |a: usize, b: usize| [a, b].map(|at| WindowEvidence { window: &windows[at], evidence });
        let agreement = |pairs: &[[WindowEvidence<'_>; 2]]| of_pairs(pairs).unwrap().agreement;
        // One pair, 2 % apart: no spread is known, and a pair of one kernel may do that. Four pairs that differ in both directions show it.
        assert_eq!(agreement(&[pair(0, 1)]), Agreement::TooSmall);
        assert_eq!(agreement(&[pair(0, 1), pair(2, 3), pair(4, 5), pair(6, 7)]), Agreement::TooSmall);
        // Four pairs that all differ so leave no doubt, nor does one that differs by more than such pairs do.
        assert_eq!(agreement(&[pair(0, 1); 4]), Agreement::Depends);
        let far = window(12_000, 10_000, &[(0, 0)]);
        let far = [pair(0, 1)[0], WindowEvidence { window: &far, evidence }];
        assert_eq!(agreement(&[far]), Agreement::Depends);
        // Path length and all models agree on the mean of four pairs, which is only worth something if the pairs agree, too.
        let of_pairs_with = |instructions: [u64; 4]| {
            let base = window(10_000, 10_000, &[(0, 0)]);
            let others = instructions.map(|n| window(n, n, &[(0, 0)]));
            let each = |other| [&base, other].map(|window| WindowEvidence { window, evidence });
            agreement(&others.each_ref().map(each))
        };
        assert_eq!(of_pairs_with([11_300, 11_200, 11_400, 11_300]), Agreement::Robust);
        assert_eq!(of_pairs_with([13_000, 9_000, 14_000, 9_200]), Agreement::TooSmall);
    }

    #[test]
    fn every_modelled_window_has_its_cycles_whether_its_line_differs_or_not() {
        let plan = crate::fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![crate::fixture::micro()]);
        let judgement = crate::judge(&plan, &crate::fixture::records(&plan, 1e-4, |_, _, _| 1.0));
        let named = |metric: &str, ns| Executed { metric: metric.to_owned(), ..window(10_000, ns, &[(0, 0)]) };
        let of = |slot, ns| Evidence {
            places: places(),
            ..crate::fixture::evidence(slot, vec![named("fork-exit", ns), named("null-call", 10_000)])
        };
        let slot = |arm| plan.slots.iter().find(|s| s.pair == 0 && s.arm == arm).unwrap().slot;
        let evidence = [of(slot(0), 20_000), of(slot(1), 30_000)];
        let all = windows(&plan, &judgement, &evidence);
        let names: Vec<_> = all.iter().map(|w| (w.metric.as_str(), w.pairs, w.a, w.b, w.of.agreement)).collect();
        assert_eq!(
            names,
            [
                ("null-call", 1, 1000.0, 1000.0, Agreement::TooSmall),
                ("fork-exit", 1, 2000.0, 3000.0, Agreement::Robust)
            ]
        );
        assert!(windows(&plan, &judgement, &evidence[..1]).is_empty());
    }

    #[test]
    fn nothing_is_said_of_windows_without_a_model_or_of_an_earlier_one() {
        let a = window(10_000, 10_000, &[(Event::Walk as usize, 70)]);
        assert_eq!(modelled(&a, &Executed { modelled: Vec::new(), ..a.clone() }), None);
        assert_eq!(of_pairs(&[]), None);
        // Evidence of later versions has places elsewhere, and unknown ones; that of earlier ones lacks some.
        let mut other = places();
        other.reverse();
        other.push("tea-breaks".to_owned());
        let walks = other.iter().position(|place| place == "tlb-walk").unwrap();
        let b = window(10_000, 10_000, &[(walks, 70), (other.len() - 1, 1_000_000)]);
        let evidence = of(places());
        let of_both = |other: &Evidence| {
            let [a, b] = [(&a, &evidence), (&b, other)].map(|(window, evidence)| WindowEvidence { window, evidence });
            of_pairs(&[[a, b]])
        };
        let both = of_both(&of(other.clone())).unwrap();
        assert_eq!(both.processors[0].a, both.processors[0].b);
        other.remove(0);
        assert_eq!(of_both(&of(other)), None);
    }
}
