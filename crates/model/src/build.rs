//! The level of builds: several images linked from one source, so that a study speaks of the source and not of one image's layout.
//!
//! Invariant: a pair's number alone decides which build of every arm it boots.

use serde::{Deserialize, Serialize};

use crate::plan::{Arm, Design, Plan, Slot};

/// An image linked from the objects of an arm's build tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The seed of its layout: with the tree, it decides the image.
    pub layout: u64,
    /// Hash of the boot image's bytes, lower-case hexadecimal.
    pub image_sha256: String,
}

impl Design {
    /// The build that the boots of a pair use, from 0; `None` if each arm is one image.
    pub fn build_of(&self, pair: u32) -> Option<u32> {
        self.rebuilds.map(|builds| pair % builds.max(1))
    }

    /// Number of pairs that share a build; 1 without rebuilds, where a pair is the unit.
    pub fn pairs_per_build(&self) -> u32 {
        self.rebuilds.map_or(1, |builds| self.pairs / builds.max(1))
    }

    /// Whether every build has as many pairs of either order, so that an effect of running second cancels within it.
    pub fn has_balanced_builds(&self) -> bool {
        self.rebuilds.is_some() && self.pairs_per_build().is_multiple_of(2)
    }

    /// The unit of replication with its number: builds, or pairs.
    pub fn units(&self) -> u32 {
        self.rebuilds.unwrap_or(self.pairs)
    }
}

impl Arm {
    /// Hash of the image that its boots in `pair` use.
    fn image(&self, design: &Design, pair: u32) -> &str {
        let build = design.build_of(pair).and_then(|build| self.builds.get(build as usize));
        build.map_or(&self.kernel.image_sha256, |build| &build.image_sha256)
    }
}

impl Plan {
    /// Hash of the image that boots in a slot.
    pub fn image_of(&self, slot: &Slot) -> &str {
        self.arms[slot.arm].image(&self.design, slot.pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_go_round_the_builds() {
        let design = |pairs, rebuilds| Design { pairs, seed: 1, hang_cpu_seconds: 1, idle_gap_seconds: 0, rebuilds };
        let built = design(12, Some(6));
        assert_eq!([0, 5, 6, 11].map(|pair| built.build_of(pair)), [Some(0), Some(5), Some(0), Some(5)]);
        assert_eq!((built.pairs_per_build(), built.has_balanced_builds(), built.units()), (2, true, 6));
        assert!(!design(6, Some(6)).has_balanced_builds() && !design(18, Some(6)).has_balanced_builds());
        let plain = design(12, None);
        assert_eq!((plain.build_of(3), plain.pairs_per_build(), plain.units()), (None, 1, 12));
        assert!(!plain.has_balanced_builds());
        // A plan from elsewhere may hold any number.
        assert_eq!(design(12, Some(0)).build_of(3), Some(0));
    }
}
