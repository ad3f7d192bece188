//! What a study's pairs are to achieve, as options.

use std::time::Duration;

use clap::Args;

use crate::study::sizing;

/// A wish in place of a number of pairs.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Study")]
pub struct Sizing {
    /// Choose the largest number of pairs whose trials fit into this time, such as 45m or 2h, by what trials of the same work
    /// took here before
    #[arg(long, value_name = "TIME", value_parser = sizing::budget)]
    pub budget: Option<Duration>,
    /// Choose the smallest number of pairs whose 95 % intervals of the primary metrics are expected within plus or minus this
    /// many percent, by how far pairs of the same work varied here before, or by the noise card
    #[arg(long, value_name = "PERCENT", value_parser = sizing::precision, allow_negative_numbers = true)]
    pub precision: Option<f64>,
}
