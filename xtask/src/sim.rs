//! The simulation study: sessions with a known truth, judged by the same statistics as real ones.
//!
//! Invariant: every table printed is also checked against the documentation's promises; one miss fails the command. The numbers
//! depend on the seed and the number of replicates, not on threads or machine.
//!
//! Scale: the noise of one pair has standard deviation 1 and the margin is 1 too, as in "s = 1 %, m = 1 %".

mod arms;
mod check;
mod claims;
mod design;
mod grid;
mod machines;
mod many;
mod noise;
mod rebuilds;
mod reference;
mod replicate;
mod screening;
mod survival;

use std::time::Instant;

use bigiron_stats::Flips;

use check::Checks;

#[derive(clap::Args)]
pub struct Args {
    /// Few replicates: under a minute, for continuous integration
    #[arg(long)]
    smoke: bool,
    /// Simulated studies for each line of a table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(200..))]
    replicates: Option<u64>,
    /// Only the parts whose title contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The common settings of all parts of the study.
struct Setting {
    replicates: u64,
    seed: u64,
    smoke: bool,
}

/// A part of the study prints its tables and checks them.
type Part = fn(&Setting, &mut Checks);

/// The name of a design's flips in tables.
fn name(flips: Flips) -> &'static str {
    match flips {
        Flips::Balanced => "balanced",
        Flips::Blocks(_) => "within machines",
        Flips::Full => "full",
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let replicates = args.replicates.unwrap_or(if args.smoke { 2_000 } else { 20_000 });
    let setting = Setting { replicates, seed: args.seed, smoke: args.smoke };
    let mut checks = Checks::new(args.smoke);
    println!("{replicates} replicates, seed {}; noise of a pair s = 1, margin m = 1 unless said otherwise", args.seed);
    let parts: [(&str, Part); 20] = [
        ("Shift effects: coverage, type I error, wrong `same`", grid::shifts),
        ("Shift effects on the exact clock: full flips", grid::exact_shifts),
        ("B changes the shape of the distribution", grid::shapes),
        ("Verdicts at 12 pairs", grid::verdicts),
        ("Smallest detectable effect (MDE) and pairs for `same`", design::power),
        ("Pairs that would settle an inconclusive study", design::hints),
        ("Stein's two stages", design::stein),
        ("Several primaries: wrong claims", claims::family_error),
        ("Several primaries: a real regression", claims::one_regression),
        ("Several primaries: tiny changes", claims::tiny),
        ("The metrics behind a mean", claims::families),
        ("Many metrics", many::multiplicity),
        ("Several arms and effects of the place", arms::places),
        ("Several machines as blocks", machines::machines),
        ("Failed boots of both arms", survival::survival),
        ("Screenings", screening::screening),
        ("Builds of equal sources", rebuilds::rebuilds),
        ("Methods at 10 pairs", reference::methods),
        ("Designs that bigiron refuses", reference::refused),
        ("Stopping when significant", reference::peeking),
    ];
    for (title, part) in parts {
        if args.only.as_ref().is_some_and(|only| !title.contains(only.as_str())) {
            continue;
        }
        let start = Instant::now();
        println!("\n{title}");
        part(&setting, &mut checks);
        eprintln!("{title}: {:.1} s", start.elapsed().as_secs_f64());
    }
    checks.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask sim --smoke`, which prints the tables as well.
    #[test]
    fn what_is_promised_is_kept_in_a_small_simulation() {
        run(&Args { smoke: true, replicates: None, only: None, seed: 1 }).unwrap();
    }
}
