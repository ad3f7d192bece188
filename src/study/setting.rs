//! Settings as typed: levers, including workloads' options.

use bigiron_lab::lever::{self, LeverError, Scope};
use bigiron_model::setting::Setting;
use bigiron_model::suggest;

use crate::registry;

/// Parses `FAMILY.NAME` or `FAMILY.NAME=VALUE`, and checks that the lever exists and accepts the value.
pub fn parse(text: &str) -> Result<Setting, LeverError> {
    lever::parse_with(text, check)
}

/// Checks one setting. A workload's options are checked together, by [`bigiron_workload::configure`]; this checks only
/// that the workload and the option exist and that a value is given.
pub fn check(lever: &str, value: &str) -> Result<Scope, LeverError> {
    if let Some(scope) = lever::check(lever, value)? {
        return Ok(scope);
    }
    let (family, name) = lever.split_once('.').ok_or_else(|| LeverError::Form(lever.to_owned()))?;
    check_option(lever, family, name, value).map(|()| Scope::Workload)
}

fn check_option(lever: &str, family: &str, name: &str, value: &str) -> Result<(), LeverError> {
    let unknown = |right| LeverError::Unknown { lever: lever.to_owned(), right };
    let Some(workload) = registry::find(family) else {
        let families: Vec<&str> = families().collect();
        return Err(unknown(match suggest::nearest(family, families.iter().copied()) {
            Some(near) => format!("did you mean `{near}.{name}`?"),
            None => format!("levers begin with {}", suggest::list(families.iter().map(|f| format!("{f}.")))),
        }));
    };
    if !workload.options().iter().any(|o| o.name == name) {
        workload.check_dotted(name).map_err(unknown)?;
    }
    if value.is_empty() {
        return Err(LeverError::Value {
            lever: lever.to_owned(),
            value: String::new(),
            right: format!("write `{lever}=VALUE`"),
        });
    }
    Ok(())
}

/// The families of levers, as lists show them.
pub fn families() -> impl Iterator<Item = &'static str> {
    lever::families().chain(registry::all().iter().map(|w| w.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_lever_is_refused_with_what_would_be() {
        for (text, want) in [
            ("mitigations=off", "write FAMILY.NAME"),
            ("boot.mitigations=", "omit the `=`"),
            ("bot.mitigations=off", "did you mean `boot.mitigations`?"),
            ("zzzzzz.vm.swappiness=1", "levers begin with `boot.`"),
            ("fault.inject=crash", "`panic`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
