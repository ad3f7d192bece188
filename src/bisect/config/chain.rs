//! The chain of configurations between two configurations of one tree: each link takes one more difference from the bad one.
//!
//! Options that are switched off come first, dependents before their dependencies; then options that are switched on or get
//! another value, dependencies before their dependents. So an option changes alone, and not together with everything that depends
//! on it. Members of a choice are switched together.
//! Invariant: the first link is the good configuration and the last the bad one, byte for byte.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::kconfig::Kconfig;
use super::options::{ConfigOptions, NOT_SET, OptionChange};

/// Options that a link switches from the good configuration's values to the bad one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch(pub Vec<OptionChange>);

/// Two configurations, and the chain between them.
#[derive(Clone, Debug)]
pub struct Chain {
    good: (String, ConfigOptions),
    bad: (String, ConfigOptions),
    switches: Vec<Switch>,
}

impl Chain {
    /// The chain between two configurations written by Kconfig.
    ///
    /// # Errors
    /// If a text is not a configuration; the message gives the reason.
    pub fn new(good: String, bad: String, kconfig: &Kconfig) -> Result<Chain, String> {
        let parse =
            |text: &str| ConfigOptions::parse(text).map_err(|(line, why)| format!("line {line} of a .config: {why}"));
        let (of_good, of_bad) = (parse(&good)?, parse(&bad)?);
        let switches = switches(of_good.changes(&of_bad), kconfig);
        Ok(Chain { good: (good, of_good), bad: (bad, of_bad), switches })
    }

    /// The options of the good configuration.
    pub fn good(&self) -> &ConfigOptions {
        &self.good.1
    }

    /// The options of the bad configuration.
    pub fn bad(&self) -> &ConfigOptions {
        &self.bad.1
    }

    /// The switch of each link after the first. Empty only if the configurations are equal.
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// Whether the configurations are equal.
    pub fn is_empty(&self) -> bool {
        self.good.1.changes(&self.bad.1).is_empty()
    }

    /// An option of `options` whose value neither end has.
    pub fn stranger(&self, options: &ConfigOptions) -> Option<String> {
        options.stranger(&self.good.1, &self.bad.1)
    }

    /// The configuration in which the first `count` switches have the bad end's values; Kconfig turns it into the link's
    /// configuration.
    pub fn text(&self, count: usize) -> String {
        let ((good_text, good), (bad_text, bad)) = (&self.good, &self.bad);
        match count {
            0 => return good_text.clone(),
            _ if count >= self.switches.len() => return bad_text.clone(),
            _ => {}
        }
        let mut switched: HashMap<&str, &str> = HashMap::new();
        for (index, switch) in self.switches.iter().enumerate() {
            switched.extend(switch.0.iter().map(|change| {
                let value = if index < count { &change.to } else { &change.from };
                (change.option.as_str(), value.as_str())
            }));
        }
        let mut text = String::new();
        for option in good.all_of(bad) {
            // An option that only one end has, and that cannot be switched, has no effect in the other.
            let one = if good.has(option) { good.value(option) } else { bad.value(option) };
            let _ = match switched.get(option).copied().unwrap_or(one) {
                NOT_SET => writeln!(text, "# CONFIG_{option} is not set"),
                value => writeln!(text, "CONFIG_{option}={value}"),
            };
        }
        text
    }
}

fn switches(changes: Vec<OptionChange>, kconfig: &Kconfig) -> Vec<Switch> {
    // A number or text that only one configuration has belongs to an option that is switched.
    let is_own =
        |change: &OptionChange| change.is_switch() || ![&change.from, &change.to].contains(&&NOT_SET.to_owned());
    let all = changes.len();
    let own: Vec<OptionChange> = changes.iter().filter(|change| is_own(change)).cloned().collect();
    if own.is_empty() && all > 0 {
        return vec![Switch(changes)];
    }
    let (off, on): (Vec<OptionChange>, Vec<OptionChange>) =
        own.into_iter().partition(|change| change.is_off() && kconfig.choice(&change.option).is_none());
    let mut switches: Vec<Switch> = off.into_iter().rev().map(|change| Switch(vec![change])).collect();
    let mut of_choice: HashMap<usize, usize> = HashMap::new();
    for change in on {
        let choice = kconfig.choice(&change.option);
        match choice.and_then(|choice| of_choice.get(&choice)) {
            Some(at) => switches[*at].0.push(change),
            None => {
                of_choice.extend(choice.map(|choice| (choice, switches.len())));
                switches.push(Switch(vec![change]));
            }
        }
    }
    // A choice is named after its new value.
    for switch in &mut switches {
        switch.0.sort_by_key(OptionChange::is_off);
    }
    switches
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "CONFIG_A=y\nCONFIG_DEBUG=y\nCONFIG_DEBUG_LEVEL=3\nCONFIG_DEBUG_LISTS=y\nCONFIG_HZ_100=y\n\
        # CONFIG_HZ_1000 is not set\nCONFIG_HZ=100\n# CONFIG_NET is not set\nCONFIG_SIZE=1\n";
    const BAD: &str = "CONFIG_A=y\n# CONFIG_DEBUG is not set\n# CONFIG_HZ_100 is not set\nCONFIG_HZ_1000=y\nCONFIG_HZ=1000\n\
        CONFIG_NET=y\nCONFIG_NET_QUEUES=4\n# CONFIG_NET_SLOW is not set\nCONFIG_NET_FAST=y\nCONFIG_SIZE=2\n";

    fn chain() -> Chain {
        let lines = ["choice", "config HZ_100", "config HZ_1000", "endchoice", "config NET"];
        let lines = lines.iter().enumerate().map(|(n, text)| ("Kconfig".to_owned(), n + 1, (*text).to_owned()));
        Chain::new(GOOD.to_owned(), BAD.to_owned(), &Kconfig::parse(lines)).unwrap()
    }

    #[test]
    fn children_go_before_and_come_after_their_parents() {
        let chain = chain();
        let names: Vec<Vec<String>> =
            chain.switches().iter().map(|s| s.0.iter().map(OptionChange::name).collect()).collect();
        let expected: [&[&str]; 7] = [
            &["CONFIG_DEBUG_LISTS=n"],
            &["CONFIG_DEBUG=n"],
            &["CONFIG_HZ_1000=y", "CONFIG_HZ_100=n"],
            &["CONFIG_HZ=1000"],
            &["CONFIG_NET=y"],
            &["CONFIG_NET_FAST=y"],
            &["CONFIG_SIZE=2"],
        ];
        assert_eq!(names, expected);
        assert!(!chain.is_empty());
    }

    #[test]
    fn links_lead_from_one_end_to_the_other() {
        let chain = chain();
        let last = chain.switches().len();
        assert_eq!((chain.text(0), chain.text(last)), (GOOD.to_owned(), BAD.to_owned()));
        let at = |count: usize| ConfigOptions::parse(&chain.text(count)).unwrap();
        for count in 1..last {
            let (before, after) = (at(count - 1), at(count));
            for change in &chain.switches()[count - 1].0 {
                assert_eq!(after.value(&change.option), change.to, "{count}");
                assert_eq!(before.value(&change.option), change.from, "{count}");
            }
        }
        // Options that depend on a later switch have their value from the start, and options absent from the bad end stay absent.
        let with_net = at(5);
        assert_eq!((with_net.value("NET_QUEUES"), with_net.value("NET_FAST")), ("4", "n"));
        assert!(with_net.has("NET_SLOW") && with_net.value("NET_SLOW") == "n");
        assert_eq!(at(1).value("DEBUG_LEVEL"), "3");
    }

    #[test]
    fn the_same_twice_has_no_links() {
        let same = Chain::new(GOOD.to_owned(), format!("{GOOD}# CONFIG_X is not set\n"), &Kconfig::default()).unwrap();
        assert!(same.is_empty() && same.switches().is_empty());
        let number = Chain::new("CONFIG_A=y\n".to_owned(), "CONFIG_A=y\nCONFIG_N=1\n".to_owned(), &Kconfig::default());
        assert_eq!(number.unwrap().switches().len(), 1);
        assert!(Chain::new("CONFIG_A".to_owned(), String::new(), &Kconfig::default()).is_err());
    }
}
