//! Selects the candidates of a search from the links of a chain.
//!
//! Invariant: the good configuration comes first and the bad one last, and each differs from the one before it.

use super::super::ChainLink;
use super::chain::Chain;
use super::options::ConfigOptions;

/// All links of a chain, from the good configuration to the bad one, none of them configured.
pub fn all(chain: &Chain) -> Vec<ChainLink> {
    (0..=chain.switches().len()).map(|count| link(chain, count.saturating_sub(1), count)).collect()
}

/// The link that switches everything between `from` and `to`; each switch is named after its first option.
fn link(chain: &Chain, from: usize, to: usize) -> ChainLink {
    let options = chain.switches()[from..to].iter().filter_map(|switch| switch.0.first().cloned()).collect();
    ChainLink { switched: to, options }
}

/// The candidates of a chain that is configured link by link, from its good end.
pub struct Candidates<'a> {
    chain: &'a Chain,
    kept: Vec<Laid>,
}

struct Laid {
    link: ChainLink,
    text: String,
    options: ConfigOptions,
}

impl<'a> Candidates<'a> {
    /// The good configuration alone.
    pub fn new(chain: &'a Chain) -> Self {
        let good = Laid { link: link(chain, 0, 0), text: chain.text(0), options: chain.good().clone() };
        Self { chain, kept: vec![good] }
    }

    /// Adds Kconfig's result for the next link, which has `count` switches and is not the last. A result equal to its
    /// predecessor, or with values that neither end has, is not a candidate: its switches are joined with the next link's.
    pub fn add(&mut self, count: usize, text: String, options: ConfigOptions) {
        if self.last().options.changes(&options).is_empty() || self.chain.stranger(&options).is_some() {
            return;
        }
        self.push(count, text, options);
    }

    /// All candidates with their configurations; the bad configuration is the last.
    pub fn end(mut self) -> Vec<(ChainLink, String)> {
        let (all, bad) = (self.chain.switches().len(), self.chain.bad());
        let text = self.chain.text(all);
        // A link may equal the bad configuration before all is switched: the remaining switches then have no effect.
        match self.kept.iter().skip(1).position(|laid| laid.options.changes(bad).is_empty()) {
            Some(before) => {
                self.kept.truncate(before + 2);
                let last = &mut self.kept[before + 1];
                (last.link.switched, last.text) = (all, text);
            }
            None => self.push(all, text, bad.clone()),
        }
        self.kept.into_iter().map(|laid| (laid.link, laid.text)).collect()
    }

    fn last(&self) -> &Laid {
        &self.kept[self.kept.len() - 1]
    }

    fn push(&mut self, count: usize, text: String, options: ConfigOptions) {
        let changes = self.last().options.changes(&options);
        let mut link = link(self.chain, self.last().link.switched, count);
        link.options.retain(|change| changes.iter().any(|c| c.option == change.option));
        self.kept.push(Laid { link, text, options });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kconfig::Kconfig;
    use super::*;

    /// A chain of the switches A, B, C and D.
    fn chain() -> Chain {
        let good = "# CONFIG_A is not set\n# CONFIG_B is not set\n# CONFIG_C is not set\n# CONFIG_D is not set\n";
        let bad = "CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=y\nCONFIG_D=y\n";
        Chain::new(good.to_owned(), bad.to_owned(), &Kconfig::default()).unwrap()
    }

    /// The candidates for these results of Kconfig: the number of switches and the options of each.
    fn laid(links: &[(usize, &str)]) -> Vec<(usize, String)> {
        let chain = chain();
        let mut candidates = Candidates::new(&chain);
        for (count, set) in links {
            let text: String = set.chars().map(|option| format!("CONFIG_{option}=y\n")).collect();
            let options = ConfigOptions::parse(&text).unwrap();
            candidates.add(*count, text, options);
        }
        let candidates = candidates.end();
        assert_eq!(candidates[0].1, chain.text(0));
        assert_eq!(candidates[candidates.len() - 1].1, chain.text(4));
        candidates.into_iter().map(|(link, _)| (link.switched, named(&link))).collect()
    }

    fn named(link: &ChainLink) -> String {
        link.options.iter().map(|change| change.option.as_str()).collect()
    }

    fn expected(candidates: &[(usize, &str)]) -> Vec<(usize, String)> {
        candidates.iter().map(|(count, options)| (*count, (*options).to_owned())).collect()
    }

    #[test]
    fn each_link_is_a_candidate() {
        let each = expected(&[(0, ""), (1, "A"), (2, "B"), (3, "C"), (4, "D")]);
        assert_eq!(laid(&[(1, "A"), (2, "AB"), (3, "ABC")]), each);
        assert_eq!(all(&chain()).iter().map(|link| (link.switched, named(link))).collect::<Vec<_>>(), each);
    }

    #[test]
    fn what_has_no_effect_goes_with_what_comes_next() {
        // B alone has no effect, and Kconfig rejects the link of B and C.
        assert_eq!(laid(&[(1, "A"), (2, "A"), (3, "ABC")]), expected(&[(0, ""), (1, "A"), (3, "BC"), (4, "D")]));
        assert_eq!(laid(&[(1, "A"), (3, "ABC")]), expected(&[(0, ""), (1, "A"), (3, "BC"), (4, "D")]));
        assert_eq!(laid(&[]), expected(&[(0, ""), (4, "ABCD")]));
    }

    #[test]
    fn what_neither_end_has_is_no_candidate() {
        assert_eq!(laid(&[(1, "AX"), (2, "AB")]), expected(&[(0, ""), (2, "AB"), (4, "CD")]));
    }

    #[test]
    fn the_first_that_is_the_bad_end_is_the_last() {
        assert_eq!(laid(&[(1, "A"), (2, "ABCD"), (3, "ABC")]), expected(&[(0, ""), (1, "A"), (4, "B")]));
    }
}
