//! A line: one metric of one workload, one arm against the first.
//!
//! Invariant: every planned pair is either in the estimate or counted by what it lacks; none is dropped silently.

use bigiron_stats::power::Unsettled;
use bigiron_stats::suite::Claim;
use bigiron_stats::{Designs, Verdict, multiplicity, power, shape, suite, verdict};
use serde::{Serialize, Serializer};

use super::inference::Inference;
use super::machines::ByMachine;
use super::standing::SlotStanding;
use super::units::Units;
use super::{ALPHA, Comparison};
use bigiron_model::metric::{Better, MetricDef};
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
use bigiron_model::rule::Rule;

/// The order in which a pair's two arms ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Ab,
    Ba,
}

/// A planned pair of one comparison with the standings of its two slots.
pub struct Pair<'a> {
    pub pair: u32,
    /// As in the plan's slots.
    pub machine: u32,
    pub order: Order,
    pub a: SlotStanding<'a>,
    pub b: SlotStanding<'a>,
}

/// A pair that is in the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Delta {
    pub pair: u32,
    /// As in the plan's slots.
    #[serde(skip)]
    pub machine: u32,
    pub order: Order,
    /// The two values, in the metric's base unit, each at least the metric's floor.
    pub a: f64,
    pub b: f64,
    /// ln(b/a).
    pub d: f64,
}

/// The pairs that are not in the estimate, by what they lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// A side failed.
    pub failed: u32,
    /// Both sides completed, but one did not deliver a valid value of this metric.
    pub absent: u32,
}

impl Missing {
    pub fn total(self) -> u32 {
        self.failed + self.absent
    }
}

/// The estimate from the pairs, on the log scale and in the metric's own direction: positive is a larger number in B.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean of D over the two orders: the ln of the ratio of geometric means.
    pub mean: f64,
    /// Standard deviation of D within its order.
    pub sd: f64,
    /// `None` where the design is too small for an interval.
    pub ci95: Option<(f64, f64)>,
    pub ci90: Option<(f64, f64)>,
    /// Two-sided p of "no change".
    #[serde(skip)]
    pub p: f64,
    /// The smallest effect that would have been detected with 80 % power; `None` where the design could detect none.
    #[serde(rename = "smallest_visible")]
    pub mde: Option<f64>,
    /// One arm seems to vary more than the other, so the interval may cover less than 95 % (see `bigiron_stats::shape`).
    #[serde(skip)]
    pub uneven: bool,
    /// `uneven`, and an interval [`shape::WIDER`] times as wide would give another verdict.
    #[serde(skip)]
    pub doubtful: bool,
}

/// One metric of one workload, one arm against the first. What is skipped when it is written, reports write as quantities.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub workload: String,
    pub metric: MetricDef,
    /// Geometric means over the pairs in the estimate, each value at least the metric's floor; `None` without any.
    #[serde(skip)]
    pub a: Option<f64>,
    #[serde(skip)]
    pub b: Option<f64>,
    pub deltas: Vec<Delta>,
    #[serde(skip)]
    pub by_machine: ByMachine,
    pub missing: Missing,
    /// `None` without any pair.
    #[serde(skip)]
    pub estimate: Option<Estimate>,
    /// The smallest change that matters: as a ratio (.02 is 2 %) and on the log scale.
    #[serde(skip)]
    pub margin: f64,
    #[serde(skip)]
    pub log_margin: f64,
    #[serde(serialize_with = "by_name")]
    pub verdict: Verdict,
    /// What the line alone would say, where the correction for the number of primaries weakened it or took it back.
    #[serde(skip)]
    pub unadjusted: Option<Verdict>,
    /// The verdict is `same`, and yet "no change" is rejected after adjustment, and the estimate is a tenth of the margin or more.
    pub tiny: bool,
    /// p of the line's two hypotheses, before any adjustment.
    #[serde(skip)]
    pub claim: Claim,
    /// p of the verdict's claim (against the margin for better and worse, against no change for the slight ones); 1 if it claims no difference.
    /// Exploratory lines: p of "no change".
    pub claim_p: f64,
    /// p of the claim that the verdict makes after adjustment, adjusted: nested Holm over all primaries, Benjamini–Hochberg over all exploratory lines.
    pub adjusted_p: f64,
    /// About how many more pairs would settle an inconclusive line, if the effect and its spread stay the same; with rebuilds, each build has the same
    /// number of them.
    pub more_pairs: Option<u32>,
}

fn by_name<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

impl Line {
    /// Whether the line shows a difference that survives its correction.
    pub fn discovery(&self) -> bool {
        self.adjusted_p <= ALPHA
    }
}

/// The pairs of `arm` against the first arm, in order.
pub fn pairs<'a>(plan: &Plan, slots: &[SlotStanding<'a>], arm: usize) -> Vec<Pair<'a>> {
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    for (slot_a, a) in plan.slots.iter().zip(slots).filter(|(s, _)| s.arm == 0) {
        let Some((slot_b, b)) = plan.slots.iter().zip(slots).find(|(s, _)| s.arm == arm && s.pair == slot_a.pair)
        else {
            continue;
        };
        let order = if slot_a.position < slot_b.position { Order::Ab } else { Order::Ba };
        pairs.push(Pair { pair: slot_a.pair, machine: slot_a.machine, order, a: *a, b: *b });
    }
    pairs.sort_by_key(|p| p.pair);
    pairs
}

/// One line, before the adjustment for the number of lines.
pub fn line(plan: &Plan, designs: &Designs, workload: &str, def: &MetricDef, pairs: &[Pair<'_>]) -> Line {
    let (deltas, missing) = deltas(workload, def, pairs);
    let margin = plan.margin(workload, def);
    let log_margin = margin.ln_1p();

    // The verdict is about improvement: a metric where lower is better is mirrored on input and mirrored back on output.
    let sign = match def.better {
        Better::Higher => 1.0,
        Better::Lower => -1.0,
    };
    let values = deltas.iter().map(|d| ((d.pair, d.machine, d.order), [d.d, d.a.ln(), d.b.ln()]));
    let units = Units::new(&plan.design, values);
    let inference = Inference::new(plan, designs, &units.blocks(|[d, ..]| sign * d));
    let (ci95, ci90) = (inference.interval(0.05), inference.interval(0.10));
    let usable = !suite::too_many_void(missing.absent, pairs.len() as u32);
    let word = match () {
        () if !usable || plan.failed_check.is_some() => Verdict::Invalid,
        () if deltas.is_empty() => Verdict::Inconclusive,
        () => verdict(ci95, ci90, log_margin),
    };
    let wider = |ci: Option<(f64, f64)>| ci.map(|ci| shape::widened(ci, inference.mean()));
    let estimate = (!deltas.is_empty()).then(|| {
        let arms = units.blocks(|[_, a, b]| (*a, *b));
        let uneven = !plan.is_screening() && shape::flagged(&arms, |blocks| designs.flip_blocks(blocks));
        Estimate {
            mean: mirror(sign, inference.mean()),
            sd: inference.sd(),
            ci95: ci95.map(|ci| mirror_interval(sign, ci)),
            ci90: ci90.map(|ci| mirror_interval(sign, ci)),
            p: inference.p(0.0),
            mde: Some(inference.mde(units.len())).filter(|m| m.is_finite()),
            uneven,
            doubtful: uneven && word != Verdict::Invalid && verdict(wider(ci95), wider(ci90), log_margin) != word,
        }
    });
    let claim = Claim::of(&inference, word, log_margin);
    let claim_p = if def.primary { claim.p() } else { claim.no_change };
    Line {
        workload: workload.to_owned(),
        metric: def.clone(),
        a: geometric_mean(deltas.iter().map(|d| d.a)),
        b: geometric_mean(deltas.iter().map(|d| d.b)),
        tiny: bigiron_stats::verdict::tiny_but_real(word, ci95),
        claim,
        by_machine: ByMachine::new(&deltas, plan.machine.members.len() as u32, plan.design.seed),
        deltas,
        missing,
        estimate,
        margin,
        log_margin,
        verdict: word,
        unadjusted: None,
        claim_p,
        adjusted_p: claim_p,
        more_pairs: None,
    }
}

fn deltas(workload: &str, def: &MetricDef, pairs: &[Pair<'_>]) -> (Vec<Delta>, Missing) {
    let mut deltas = Vec::new();
    let mut missing = Missing::default();
    for pair in pairs {
        match (pair.a, pair.b) {
            (SlotStanding::Completed(a), SlotStanding::Completed(b)) => {
                match (value(a, workload, def), value(b, workload, def)) {
                    (Some(a), Some(b)) => {
                        let d = (b / a).ln();
                        deltas.push(Delta { pair: pair.pair, machine: pair.machine, order: pair.order, a, b, d });
                    }
                    _ => missing.absent += 1,
                }
            }
            (SlotStanding::Failed(_), _) | (_, SlotStanding::Failed(_)) => missing.failed += 1,
            // A study with missing slots is not estimated.
            (SlotStanding::Missing, _) | (_, SlotStanding::Missing) => {}
        }
    }
    (deltas, missing)
}

fn value(record: &Record, workload: &str, def: &MetricDef) -> Option<f64> {
    record.metrics.get(workload, &def.name).filter(|v| def.kind.takes(*v)).map(|v| v.max(def.floor()))
}

pub(super) fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let n = values.len();
    (n > 0).then(|| (values.map(f64::ln).sum::<f64>() / n as f64).exp())
}

/// Mirrors `x`, and keeps zero positive.
fn mirror(sign: f64, x: f64) -> f64 {
    sign * x + 0.0
}

fn mirror_interval(sign: f64, (low, high): (f64, f64)) -> (f64, f64) {
    if sign < 0.0 { (mirror(sign, high), mirror(sign, low)) } else { (low, high) }
}

/// A change of `same` smaller than this share of the margin is not mentioned, however certain it is.
const SMALLEST_TINY: f64 = 0.1;

/// Adjusts for the number of lines, over all comparisons of the study: nested Holm over the primaries, weakening or withdrawing claims that do not
/// survive; Benjamini–Hochberg over the rest. Then computes how many more pairs would settle each inconclusive line.
///
/// A primary that claims no difference enters with p = 1: it counts, but never helps another claim to survive.
pub fn adjust(plan: &Plan, comparisons: &mut [Comparison]) {
    let (mut primaries, mut others): (Vec<&mut Line>, Vec<&mut Line>) =
        comparisons.iter_mut().flat_map(|c| &mut c.lines).partition(|l| l.metric.primary);
    let claims: Vec<Claim> = primaries.iter().map(|line| line.claim).collect();
    let adjusted = match plan.rule {
        Rule::First => suite::adjust_flat(&claims, ALPHA),
        Rule::Second => suite::adjust(&claims, ALPHA),
    };
    for (line, adjusted) in primaries.iter_mut().zip(adjusted) {
        (line.claim_p, line.adjusted_p) = (adjusted.claim_p, adjusted.p);
        line.unadjusted = (adjusted.verdict != adjusted.unadjusted).then_some(adjusted.unadjusted);
        line.verdict = adjusted.verdict;
        line.tiny = line.is_tiny(plan.rule, adjusted.differs);
        line.more_pairs = more_pairs(plan, line, claims.len());
    }
    let p: Vec<f64> = others.iter().map(|l| l.claim_p).collect();
    for (line, adjusted) in others.iter_mut().zip(multiplicity::benjamini_hochberg(&p)) {
        line.adjusted_p = adjusted;
        line.tiny = line.is_tiny(plan.rule, adjusted <= ALPHA);
        line.more_pairs = more_pairs(plan, line, 1);
    }
}

impl Line {
    /// Whether a difference within the margin is mentioned; `differs`: whether it is one after adjustment.
    fn is_tiny(&self, rule: Rule, differs: bool) -> bool {
        match rule {
            Rule::First => self.tiny,
            Rule::Second => {
                let size = self.estimate.map_or(0.0, |estimate| estimate.mean.abs());
                self.verdict == Verdict::Same && differs && size >= SMALLEST_TINY * self.log_margin
            }
        }
    }
}

/// The largest number of further pairs worth suggesting; above it, reduce the noise or widen the margin.
const MOST_MORE_PAIRS: u32 = 1_000;

/// The number of further pairs that would settle an inconclusive line, roughly. With rebuilds it is a multiple of the pairs of a build. A claim that
/// the correction withdrew must survive the correction among `family` primaries.
fn more_pairs(plan: &Plan, line: &Line, family: usize) -> Option<u32> {
    let estimate = line.estimate.filter(|_| line.verdict == Verdict::Inconclusive)?;
    let each = plan.design.pairs_per_build().max(1);
    let pairs = (line.deltas.len() as u32).div_ceil(each);
    let alone = Unsettled { mean: estimate.mean, pairs, sd: estimate.sd, margin: line.log_margin, level: ALPHA };
    let unsettled = match line.unadjusted {
        // No margin has to contain the interval here; only the distance from no change can settle the claim.
        Some(_) => Unsettled { margin: 0.0, level: ALPHA / family as f64, ..alone },
        None => alone,
    };
    let needed = unsettled.pairs_to_settle(plan.flips())?;
    let more = power::balanced(plan.flips(), needed.saturating_sub(pairs).max(2));
    (more <= MOST_MORE_PAIRS).then_some(more * each)
}
