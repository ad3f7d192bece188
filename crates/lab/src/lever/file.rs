//! `file.PATH=VALUE`: any file of /sys or /proc/sys, for settings without a lever.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

pub const LEVERS: &[Lever] = &[Lever {
    name: "file.PATH",
    place: LeverTarget::Named(path),
    takes: AcceptedValues::Text,
    touches: SideEffects::Nothing,
    since: None,
    summary: "any file of /sys or /proc/sys, such as `file./sys/kernel/mm/ksm/run`",
}];

fn path(path: &str) -> Result<String, String> {
    let settings = ["/sys/", "/proc/sys/"];
    if !settings.iter().any(|folder| path.starts_with(folder)) {
        return Err("the path must begin with `/sys/` or `/proc/sys/`, as in `file./sys/kernel/mm/ksm/run`".to_owned());
    }
    if path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return Err("the path must not contain `..`, `.` or a doubled `/`".to_owned());
    }
    if path.contains(|c: char| !c.is_ascii_graphic() || c == '*') {
        return Err("the path must not contain white space or `*`".to_owned());
    }
    Ok(path.to_owned())
}
