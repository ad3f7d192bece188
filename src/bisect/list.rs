//! The ordered list of kernels between two kernels.
//!
//! Invariant: a list has the good kernel first and the bad one last, and all names are unique.

use std::path::Path;

use super::builds;
use crate::study::arm::{self, ArmText};
use bigiron_archive::{Distribution, KernelSpec, Store, looks_like_kernel};
use bigiron_model::refusal::Refusal;
use bigiron_model::version::compare as compare_versions;

/// Parses `--kernels`: arms, or folders of builds, separated by commas. A piece that is not a kernel belongs to the arm before
/// it, so that an arm can have levers.
///
/// # Errors
/// If the first piece is not a kernel, or a lever is unknown.
pub fn parse(texts: &[String], named: &[String]) -> Result<Vec<ArmText>, Refusal> {
    let mut arms: Vec<String> = Vec::new();
    for text in texts {
        for (at, piece) in text.split(',').enumerate() {
            if piece.contains('/') && builds::is_folder(Path::new(piece)) {
                arms.extend(builds::list(Path::new(piece))?.iter().map(|path| path.display().to_string()));
                continue;
            }
            if looks_like_kernel(piece, named) {
                arms.push(piece.to_owned());
                continue;
            }
            match arms.last_mut() {
                Some(last) if at > 0 => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => {
                    return Err(Refusal::new(format!("`--kernels` begins with `{piece}`, which is not a kernel")).hint(
                        "A list is like `debian:6.1,debian:6.6,debian:6.12,boot.mitigations=off`; a kernel is `debian:VERSION`, a path, \
                         `running`, or a name given by `bigiron kernel add`",
                    ));
                }
            }
        }
    }
    arms.iter().map(|text| ArmText::parse(text)).collect()
}

/// The list given, with `good` before it and `bad` after it unless it begins or ends with them.
///
/// # Errors
/// If there are fewer than two ends, or both are the same.
pub fn given(good: Option<ArmText>, bad: Option<ArmText>, kernels: Vec<ArmText>) -> Result<Vec<ArmText>, Refusal> {
    let mut list = kernels;
    if let Some(good) = good
        && list.first() != Some(&good)
    {
        list.insert(0, good);
    }
    if let Some(bad) = bad
        && list.last() != Some(&bad)
    {
        list.push(bad);
    }
    match &list[..] {
        [good, .., bad] if good == bad => Err(same(good)),
        [_, _, ..] => Ok(list),
        _ => Err(Refusal::new("Fewer than two kernels; a change lies between two")
            .hint("Name the ends with `--good KERNEL --bad KERNEL`, or the whole list with `--kernels A,B,C`")),
    }
}

fn same(arm: &ArmText) -> Refusal {
    Refusal::new(format!("Good and bad are the same, `{arm}`; a change lies between two kernels"))
        .hint("`bigiron selftest` compares a kernel with itself")
}

/// The kernels of a distribution's archive from `good` to `bad`, in the order of their versions.
///
/// # Errors
/// If the ends are not of one archive, of different flavours, with different levers, equal, or in the wrong order.
pub fn of_archive(good: &ArmText, bad: &ArmText, store: &Store, note: &dyn Fn(&str)) -> anyhow::Result<Vec<ArmText>> {
    if good == bad {
        return Err(same(good).into());
    }
    let (of_good, of_bad) = (wanted(good)?, wanted(bad)?);
    if good.settings != bad.settings {
        return Err(Refusal::new("Good and bad have different levers, so the settings of the kernels between them are undefined")
            .hint("Set levers on both, or with `--set`; `bigiron bisect levers` finds the lever; or give the arms with `--kernels`")
            .into());
    }
    if of_good.flavour != of_bad.flavour {
        let message = format!(
            "Good is of flavour `{}` and bad of `{}`; a list needs one flavour",
            of_good.flavour, of_bad.flavour
        );
        return Err(Refusal::new(message).into());
    }
    if of_good.distribution != of_bad.distribution {
        let message = format!("Good is {}'s and bad {}'s; a list needs one", of_good.distribution, of_bad.distribution);
        return Err(Refusal::new(message).hint("Name the kernels in order: `--kernels A,B,C`").into());
    }
    let all = store.kernels_of(of_good.distribution, &of_good.flavour, note)?;
    between(good, bad, (&of_good.version, &of_bad.version), &all).map_err(Into::into)
}

/// A kernel of a distribution's archive.
#[derive(Debug)]
struct Wanted {
    distribution: Distribution,
    version: String,
    flavour: String,
}

fn wanted(arm: &ArmText) -> Result<Wanted, Refusal> {
    match KernelSpec::parse(&arm.kernel) {
        Ok(KernelSpec::Archive { distribution, version, flavour }) => {
            let flavour = flavour.unwrap_or_else(|| distribution.default_flavour().to_owned());
            Ok(Wanted { distribution, version, flavour })
        }
        Ok(_) => Err(Refusal::new(format!("`{arm}` is not in an archive, so the kernels between are unknown"))
            .hint("Name the kernels in order: `--kernels A,B,C`")),
        Err(e) => Err(Refusal::new(e.to_string())),
    }
}

/// The kernels of `all` (exact specs, oldest first) between those that `good` and `bad` stand for, with these at the ends.
fn between(good: &ArmText, bad: &ArmText, wanted: (&str, &str), all: &[String]) -> Result<Vec<ArmText>, Refusal> {
    let version = |text: &str| match KernelSpec::parse(text) {
        Ok(KernelSpec::Archive { version, .. }) => version,
        _ => String::new(),
    };
    let find = |arm: &ArmText, wanted: &str| {
        all.iter().rposition(|text| bigiron_model::version::satisfies(&version(text), wanted)).ok_or_else(|| {
            let newest =
                all.last().map_or_else(|| "there is none".to_owned(), |last| format!("the newest is `{last}`"));
            Refusal::new(format!("No kernel `{arm}` in the archive or in the cache; {newest}"))
        })
    };
    let (first, last) = (find(good, wanted.0)?, find(bad, wanted.1)?);
    if first == last {
        return Err(Refusal::new(format!("`{good}` and `{bad}` are the same kernel, `{}`", all[first])));
    }
    if compare_versions(&version(&all[first]), &version(&all[last])).is_gt() {
        return Err(Refusal::new(format!("Good, `{}`, is newer than bad, `{}`", all[first], all[last])).hint(
            "Exchange them: a bisection finds a change in either direction, `--good` only names the older side",
        ));
    }
    let inner = all[first + 1..last].iter().map(|text| ArmText {
        name: None,
        kernel: text.clone(),
        settings: good.settings.clone(),
    });
    let end = |index: usize, arm: &ArmText| ArmText { kernel: all[index].clone(), ..arm.clone() };
    Ok([end(first, good)].into_iter().chain(inner).chain([end(last, bad)]).collect())
}

/// The same arms with unique names.
pub fn named(list: &[ArmText]) -> Vec<ArmText> {
    let names = arm::names(list);
    list.iter().zip(names).map(|(arm, name)| ArmText { name: Some(name), ..arm.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(arms: &[ArmText]) -> Vec<String> {
        arms.iter().map(ToString::to_string).collect()
    }

    fn arm(text: &str) -> ArmText {
        ArmText::parse(text).unwrap()
    }

    #[test]
    fn a_list_is_split_where_a_kernel_begins() {
        let text = "debian:6.1,mine,debian:6.12,boot.mitigations=auto,nosmt,boot.nosmt,./bzImage";
        let arms = parse(&[text.to_owned(), "running".to_owned()], &["mine".to_owned()]).unwrap();
        assert_eq!(
            texts(&arms),
            ["debian:6.1", "mine", "debian:6.12,boot.mitigations=auto,nosmt,boot.nosmt", "./bzImage", "running"]
        );
        for text in ["boot.nosmt,debian:6.1", "mnie", ""] {
            assert!(parse(&[text.to_owned()], &["mine".to_owned()]).is_err(), "{text}");
        }
        assert!(parse(&["debian:6.1,bot.x=1".to_owned()], &[]).unwrap_err().message.contains("bot.x"));
    }

    #[test]
    fn the_ends_are_added_where_the_list_lacks_them() {
        let list = || vec![arm("debian:6.1"), arm("debian:6.6")];
        let with =
            |good: Option<&str>, bad: Option<&str>| given(good.map(arm), bad.map(arm), list()).map(|l| texts(&l));
        assert_eq!(with(None, None).unwrap(), ["debian:6.1", "debian:6.6"]);
        assert_eq!(with(Some("debian:6.1"), Some("debian:6.12")).unwrap(), ["debian:6.1", "debian:6.6", "debian:6.12"]);
        assert!(with(None, Some("debian:6.1")).unwrap_err().message.contains("the same"));
        assert!(given(None, None, vec![arm("debian:6.1")]).is_err());
        let again = named(&[arm("debian:6.1"), arm("debian:6.1"), arm("debian:6.1,boot.nosmt")]);
        let names: Vec<&str> = again.iter().filter_map(|a| a.name.as_deref()).collect();
        assert_eq!(names, ["debian:6.1", "debian:6.1 (again)", "debian:6.1,boot.nosmt"]);
    }

    #[test]
    fn kernels_lie_between_by_their_versions() {
        let all = ["6.1.9-1", "6.1.190-1", "6.1.192-1", "6.6.2-1", "6.12.9-1", "6.12.117-1~deb12u1"];
        let all: Vec<String> = all.iter().map(|v| format!("debian:{v}")).collect();
        let list = |good: &str, bad: &str| {
            let wanted = (wanted(&arm(good)).unwrap().version, wanted(&arm(bad)).unwrap().version);
            between(&arm(good), &arm(bad), (&wanted.0, &wanted.1), &all).map(|l| texts(&l))
        };
        // A series means its newest kernel.
        assert_eq!(list("debian:6.1", "debian:6.12.9").unwrap(), all[2..5]);
        assert_eq!(list("debian:6.1.9", "debian:6.1").unwrap(), all[..3]);
        assert!(list("debian:6.12", "debian:6.1").unwrap_err().message.contains("is newer than bad"));
        assert!(list("debian:6.6", "debian:6.6.2").unwrap_err().message.contains("the same kernel"));
        assert!(list("debian:6.3", "debian:6.6").unwrap_err().message.contains("No kernel `debian:6.3`"));
        assert!(wanted(&arm("running")).unwrap_err().message.contains("is not in an archive"));
    }
}
