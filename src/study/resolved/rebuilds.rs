//! `--rebuilds`: several images of each source; a pair boots one image of each source.
//!
//! Invariant: every build has equally many pairs, and there are enough builds for a verdict, or the question is refused.

use std::path::Path;

use bigiron_archive::spec::KernelSpec;
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::refusal::Refusal;
use bigiron_model::rule::Rule;
use bigiron_stats::{Flips, power};

use super::super::question::Question;

/// More images than any study needs; each costs the time of a link and space in the cache.
const LIMIT: u32 = 100;

/// Refuses rebuilds where nothing can be rebuilt.
pub(super) fn check(q: &Question, host: HostKind) -> Result<(), Refusal> {
    let Some(builds) = q.rebuilds else { return Ok(()) };
    let refuse = |message: String| Err(q.places.refuse("design.rebuilds", message));
    if host.is_machine() {
        return refuse(format!("`--rebuilds` needs guests, not `--on {host}`; leave out `--rebuilds`"));
    }
    if q.screening {
        return refuse(
            "A screening (`--quick`) has too few pairs for rebuilds; leave out `--rebuilds` or `--quick`".to_owned(),
        );
    }
    if builds > LIMIT {
        return refuse(format!("{builds} builds of each source are too many; the maximum is {LIMIT}"));
    }
    let arms = if host == HostKind::Vm { &q.arms[..] } else { &[] };
    for (i, arm) in arms.iter().enumerate() {
        if !matches!(KernelSpec::parse(&arm.kernel), Ok(KernelSpec::BuildTree(_))) {
            let message = format!("The kernel `{}` cannot be rebuilt: it is {}", arm.kernel, what(&arm.kernel));
            return Err(q.places.refuse(&format!("arms.{i}"), message).hint(
                "`--rebuilds` links kernels again from their objects: give the folder in which `make` built the kernel",
            ));
        }
    }
    Ok(())
}

/// What a kernel that is no build tree is instead.
fn what(kernel: &str) -> &'static str {
    match KernelSpec::parse(kernel) {
        Ok(KernelSpec::Archive { .. } | KernelSpec::Latest | KernelSpec::Previous) => {
            "a finished image from an archive"
        }
        Ok(KernelSpec::Deb(_)) => "a package with a finished image",
        Ok(KernelSpec::Named(_)) => "the name of an image in the cache",
        Ok(KernelSpec::Running) => "this machine's image",
        _ if Path::new(kernel).exists() => "an image without its objects",
        _ => "not a folder",
    }
}

/// The pairs of a study of `builds` images of each source, and a warning if they cannot carry all verdicts. `usual` is the number without rebuilds.
///
/// # Errors
/// The pairs are odd or not a multiple of the builds; too few builds.
pub(super) fn pairs(
    q: &Question,
    builds: u32,
    usual: u32,
    clock: Clock,
    primaries: usize,
) -> Result<(u32, Option<String>), Refusal> {
    let refuse = |message: String| Err(q.places.refuse("design.rebuilds", message));
    // The number of pairs is even, and each build has the same number.
    let step = if builds.is_multiple_of(2) { builds } else { 2 * builds };
    let too_few = |flips| format!("use {} or more", power::smallest_builds(flips, primaries));
    if builds < power::FEWEST_BUILDS {
        let right = too_few(Flips::Full);
        return refuse(format!("{builds} builds of each source are too few for any verdict; {right}"));
    }
    let pairs = q.pairs.unwrap_or_else(|| usual.next_multiple_of(step));
    if !pairs.is_multiple_of(step) {
        let (less, more) = (pairs / step * step, pairs.next_multiple_of(step));
        let right = if less > 0 { format!("{less} or {more}") } else { more.to_string() };
        let message =
            format!("The number of pairs must be even and a multiple of {builds} builds, not {pairs}; use {right}");
        return Err(q.places.refuse("design.pairs", message));
    }
    let each = pairs / builds;
    let flips = if each.is_multiple_of(2) { Flips::Full } else { Rule::LATEST.flips(clock) };
    if builds < power::smallest_builds(flips, 1) {
        let right = too_few(flips);
        return refuse(format!(
            "{builds} builds of each source with {each} {} each are too few for any verdict on the clock `{clock}`; {right}, or {} pairs",
            if each == 1 { "pair" } else { "pairs" },
            2 * pairs
        ));
    }
    let enough = power::smallest_builds(flips, primaries);
    let warning = (builds < enough).then(|| {
        format!(
            "{builds} builds of each source cannot carry {primaries} verdicts at once: every change would be `inconclusive`, however clear; \
             {enough} builds can"
        )
    });
    Ok((pairs, warning))
}
