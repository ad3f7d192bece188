//! Checks settings that the kernel may not know: bigiron has no table of all parameters and sysctls, but it recognizes probable misspellings.

use std::fs;
use std::path::Path;

use bigiron_model::host::HostKind;
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

use crate::study::resolved::ResolvedQuestion;

/// Parameters that studies of servers set. A word that differs from one of them by one letter is probably a misspelling.
const PARAMETERS: [&str; 44] = [
    "audit",
    "cgroup_disable",
    "clocksource",
    "cpuidle.off",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "init_on_alloc",
    "init_on_free",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "irqaffinity",
    "isolcpus",
    "kpti",
    "l1tf",
    "maxcpus",
    "mce",
    "mds",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nokaslr",
    "nopti",
    "nopcid",
    "nosmap",
    "nosmp",
    "nosmt",
    "nospectre_v1",
    "nospectre_v2",
    "nowatchdog",
    "numa_balancing",
    "page_alloc.shuffle",
    "preempt",
    "pti",
    "rcu_nocbs",
    "retbleed",
    "skew_tick",
    "spectre_v2",
    "transparent_hugepage",
    "tsc",
];

/// Returns warnings about settings that are probably misspelled.
///
/// # Errors
/// A sysctl that is a number on this machine has a value that is not a number.
pub(super) fn check(resolved: &ResolvedQuestion, sysctls: &Path) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    for (i, arm) in resolved.arms.iter().enumerate().filter(|_| resolved.machine.host != HostKind::Sim) {
        for (lever, value) in &arm.settings {
            if let Some(name) = lever.strip_prefix("boot.") {
                warnings.extend(parameter(name).map(|near| {
                    format!("Unknown kernel parameter `{lever}`; did you mean `boot.{near}`? The first boot shows whether it exists")
                }));
            } else if let Some(name) = lever.strip_prefix("sysctl.") {
                if let Some(why) = number_error(sysctls, name, value) {
                    let place = format!("arms.{i}");
                    return Err(resolved.places.refuse(&place, format!("Lever `{lever}` cannot be `{value}`: {why}")));
                }
                warnings.extend(sysctl(sysctls, name).map(|near| {
                    format!(
                        "This machine has no sysctl `{name}`; did you mean `sysctl.{near}`? The first trial shows whether it exists"
                    )
                }));
            }
        }
    }
    warnings.dedup();
    Ok(warnings)
}

/// The parameter that was probably meant.
fn parameter(name: &str) -> Option<&'static str> {
    let is_known = PARAMETERS.contains(&name);
    PARAMETERS
        .into_iter()
        .find(|known| !is_known && name.len() > 3 && differs_by_one(name.as_bytes(), known.as_bytes()))
}

/// Whether two different words differ by one letter.
fn differs_by_one(a: &[u8], b: &[u8]) -> bool {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[same..], &b[same..]);
    let rest = |of: &[u8], skip: usize| of.get(skip..).unwrap_or_default().to_vec();
    a != b && (rest(a, 1) == rest(b, 1) || rest(a, 1) == b || a == rest(b, 1))
}

/// The file of a sysctl below `sysctls`, and its last component.
fn file(sysctls: &Path, name: &str) -> std::path::PathBuf {
    sysctls.join(name.replace('.', "/"))
}

/// Why a value cannot be that of a sysctl that is a number on this machine.
fn number_error(sysctls: &Path, name: &str, value: &str) -> Option<String> {
    let now = fs::read_to_string(file(sysctls, name)).ok()?;
    let is_number = |text: &str| !text.is_empty() && text.parse::<i128>().is_ok();
    (is_number(now.trim()) && !is_number(value.trim()))
        .then(|| format!("it must be a number; here it is {}", now.trim()))
}

/// The sysctl of the same folder that was probably meant.
fn sysctl(sysctls: &Path, name: &str) -> Option<String> {
    let path = file(sysctls, name);
    let (folder, last) = (path.parent()?, path.file_name()?.to_str()?);
    if path.exists() {
        return None;
    }
    let names: Vec<String> =
        fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = suggest::nearest(last, names.iter().map(String::as_str))?;
    Some(name.rsplit_once('.').map_or_else(|| near.to_owned(), |(folder, _)| format!("{folder}.{near}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_near_a_known_name_and_known_names_are_accepted() {
        assert_eq!(parameter("mitigation"), Some("mitigations"));
        assert_eq!(parameter("nosmtt"), Some("nosmt"));
        for fine in ["mitigations", "nosmp", "nosmt", "quiet", "nohz_full", "elevator", "lsm"] {
            assert_eq!(parameter(fine), None, "{fine}");
        }
    }

    #[test]
    fn sysctls_are_those_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("vm")).unwrap();
        fs::write(dir.path().join("vm/swappiness"), "60\n").unwrap();
        assert_eq!(sysctl(dir.path(), "vm.swapiness").unwrap(), "vm.swappiness");
        assert_eq!(sysctl(dir.path(), "vm.swappiness"), None);
        assert_eq!(sysctl(dir.path(), "vm.other_thing"), None);
        assert_eq!(number_error(dir.path(), "vm.swappiness", "10"), None);
        assert_eq!(number_error(dir.path(), "vm.swappiness", "many").unwrap(), "it must be a number; here it is 60");
    }
}
