//! The consent of a target's administrator: `/etc/bigiron/allow.toml` there.
//!
//! Invariant: the file only ever widens what may be done. Without it nothing may.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bigiron_model::document;
use bigiron_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::messages::{AllowFile, Look};

/// Where the file is.
pub const PATH: &str = "/etc/bigiron/allow.toml";

/// The operations that it can allow.
const OPERATIONS: [&str; 4] = ["trials", "settings", "kernels", "reboots"];

/// Processes that listen on every server and that a trial does not interrupt more than a reboot does.
const USUAL_LISTENERS: [&str; 3] = ["sshd", "systemd", "systemd-resolve"];

/// What a study does to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demands {
    /// It changes settings of the running kernel.
    pub settings: bool,
    /// It installs and boots kernels.
    pub boots: bool,
}

/// The file's contents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allow {
    pub operations: Vec<String>,
    /// Minutes of the day in UTC between which it is allowed; over midnight if the first is larger.
    pub hours: Option<(u32, u32)>,
    pub reboots_per_day: u32,
    /// Processes that may listen.
    pub services: Vec<String>,
    /// Users who may be logged in.
    pub users: Vec<String>,
    /// Whether file systems of the network may be mounted.
    pub network_storage: bool,
}

impl Demands {
    fn operations(self) -> Vec<&'static str> {
        let mut all = vec!["trials"];
        if self.settings {
            all.push("settings");
        }
        if self.boots {
            all.extend(["kernels", "reboots"]);
        }
        all
    }

    /// The smallest file that allows it, with this many more reboots, on a machine as `look` shows it, within the hours of the present file.
    pub fn smallest_file(self, look: &Look, reboots: u32) -> String {
        let list = |words: &[String]| words.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(", ");
        let operations: Vec<String> = self.operations().into_iter().map(str::to_owned).collect();
        let mut text = format!("allow = [{}]\n", list(&operations));
        if self.boots {
            text.push_str(&format!("reboots-per-day = {}\n", look.reboots_today + reboots));
        }
        if let AllowFile::Read(Allow { hours: Some((from, to)), .. }) = look.allow {
            text.push_str(&format!("hours-utc = \"{}-{}\"\n", time(from), time(to)));
        }
        let services = foreign_listeners(look, &[]);
        if !services.is_empty() {
            text.push_str(&format!("services = [{}]\n", list(&services)));
        }
        if !look.users.is_empty() {
            text.push_str(&format!("users = [{}]\n", list(&look.users)));
        }
        if self.boots && !look.network_mounts.is_empty() {
            text.push_str("network-storage = true\n");
        }
        text
    }
}

fn foreign_listeners(look: &Look, allowed: &[String]) -> Vec<String> {
    let mut names: Vec<String> = look.listening.iter().map(|l| l.process.clone()).collect();
    names.retain(|name| !USUAL_LISTENERS.contains(&name.as_str()) && !allowed.contains(name));
    names.sort();
    names.dedup();
    names
}

/// Reads the target's file.
pub(super) fn read(path: &Path) -> AllowFile {
    let shown = path.display();
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return AllowFile::Missing,
        Err(e) => return AllowFile::Wrong(format!("`{shown}` cannot be read: {e}")),
    };
    if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return AllowFile::Wrong(format!("`{shown}` must belong to root, and nobody else may write to it"));
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => return AllowFile::Wrong(format!("`{shown}` cannot be read: {e}")),
    };
    parse(&shown.to_string(), &text).map_or_else(|refusal| AllowFile::Wrong(refusal.to_string()), AllowFile::Read)
}

/// Parses the file called `name`.
pub fn parse(name: &str, text: &str) -> Result<Allow, Refusal> {
    let root = document::parse(name, text, "an allow file")?;
    root.only(&["allow", "hours-utc", "reboots-per-day", "services", "users", "network-storage"])?;
    let words = |key: &str| -> Result<Vec<String>, Refusal> {
        let Some(value) = root.get(key) else { return Ok(Vec::new()) };
        value.array()?.iter().map(|item| item.string()).collect()
    };
    let mut allow = Allow { services: words("services")?, users: words("users")?, ..Allow::default() };
    if let Some(value) = root.get("allow") {
        for item in value.array()? {
            let word = item.string()?;
            if !OPERATIONS.contains(&word.as_str()) {
                return Err(item.is_no_word(&word, OPERATIONS.iter().copied()));
            }
            allow.operations.push(word);
        }
    }
    if let Some(value) = root.get("hours-utc") {
        let text = value.string()?;
        let span = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        allow.hours = Some(span.ok_or_else(|| value.cannot_be("two times of day, such as \"22:00-06:00\""))?);
    }
    if let Some(value) = root.get("reboots-per-day") {
        allow.reboots_per_day = value.integer()?;
    }
    if let Some(value) = root.get("network-storage") {
        allow.network_storage = value.bool().ok_or_else(|| value.cannot_be("true or false"))?;
    }
    Ok(allow)
}

fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(60 * hour + minute)
}

/// Whether `demands` may be done on the machine that `look` shows, `reboots` of them reboots.
///
/// # Errors
/// All reasons why not, and what would be right.
pub fn check(look: &Look, demands: Demands, reboots: u32) -> Result<(), Refusal> {
    let smallest = || demands.smallest_file(look, reboots);
    let allow = match &look.allow {
        AllowFile::Missing => {
            return Err(Refusal::new(format!("`{}` has no `{PATH}`, so its administrator allows nothing", look.name))
                .hint(format!(
                    "The administrator can write this file, the smallest that allows this study:\n{}",
                    smallest()
                )));
        }
        AllowFile::Wrong(why) => return Err(Refusal::new(format!("On `{}`: {why}", look.name))),
        AllowFile::Read(allow) => allow,
    };
    let mut reasons = Vec::new();
    let missing: Vec<&str> =
        demands.operations().into_iter().filter(|op| !allow.operations.iter().any(|o| o == op)).collect();
    if !missing.is_empty() {
        reasons.push(format!("`{PATH}` does not allow {}", missing.join(", ")));
    }
    if let Some((from, to)) = allow.hours.filter(|hours| !within(*hours, look.minute)) {
        reasons.push(format!(
            "`{PATH}` allows trials from {} to {} UTC; the time is {}",
            time(from),
            time(to),
            time(look.minute)
        ));
    }
    if demands.boots {
        let left = allow.reboots_per_day.saturating_sub(look.reboots_today);
        if reboots > left {
            reasons.push(format!(
                "`{PATH}` allows {} reboots a day, {} were made in the last 24 hours, and the study needs {reboots} more",
                allow.reboots_per_day, look.reboots_today
            ));
        }
        if !look.network_mounts.is_empty() && !allow.network_storage {
            reasons.push(format!("network storage is mounted ({})", look.network_mounts.join(", ")));
        }
        if look.on_battery {
            reasons.push("it runs on battery power".to_owned());
        }
    }
    let services = foreign_listeners(look, &allow.services);
    if !services.is_empty() {
        reasons.push(format!("`{PATH}` does not name these listening services: {}", services.join(", ")));
    }
    let users: Vec<&str> = look.users.iter().filter(|user| !allow.users.contains(user)).map(String::as_str).collect();
    if !users.is_empty() {
        reasons.push(format!("`{PATH}` does not name these logged-in users: {}", users.join(", ")));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let refusal = Refusal::new(format!("Not allowed on `{}`: {}", look.name, reasons.join("; ")));
    let begins = allow.hours.filter(|hours| !within(*hours, look.minute)).map(|(from, _)| time(from));
    Err(refusal.hint(match begins {
        Some(from) if reasons.len() == 1 => format!("Start the study at {from} UTC or later"),
        Some(from) => format!("The smallest `{PATH}` that allows this study from {from} UTC:\n{}", smallest()),
        None => format!("The smallest `{PATH}` that allows this study now:\n{}", smallest()),
    }))
}

/// A time of day.
fn time(minute: u32) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

fn within((from, to): (u32, u32), now: u32) -> bool {
    if from <= to { (from..to).contains(&now) } else { now >= from || now < to }
}

#[cfg(test)]
mod tests {
    use super::super::look::testing::look;
    use super::super::messages::Listener;
    use super::*;

    const BOOTS: Demands = Demands { settings: true, boots: true };

    #[test]
    fn without_the_file_nothing_is_allowed_and_the_smallest_one_does() {
        let mut look = look();
        look.listening = vec![
            Listener { process: "sshd".to_owned(), port: 22 },
            Listener { process: "postgres".to_owned(), port: 5432 },
        ];
        look.users = vec!["ann".to_owned()];
        look.network_mounts = vec!["/srv".to_owned()];
        for demands in [Demands::default(), Demands { settings: true, boots: false }, BOOTS] {
            look.allow = AllowFile::Missing;
            let refused = check(&look, demands, 8).unwrap_err();
            let hint = refused.hint.unwrap();
            let text = hint.split_once(":\n").unwrap().1;
            look.allow = AllowFile::Read(parse("allow.toml", text).unwrap());
            check(&look, demands, 8).unwrap();
            // And it is the smallest: without any of its lines it does not do.
            for (i, _) in text.lines().enumerate() {
                let less: Vec<&str> = text.lines().enumerate().filter(|(n, _)| *n != i).map(|(_, line)| line).collect();
                look.allow = AllowFile::Read(parse("allow.toml", &less.join("\n")).unwrap());
                assert!(check(&look, demands, 8).is_err(), "{text} without line {i}");
            }
        }
    }

    #[test]
    fn hours_reboots_and_battery_are_limits() {
        let mut look = look();
        let text = "allow = [\"trials\", \"settings\", \"kernels\", \"reboots\"]\nreboots-per-day = 10\nhours-utc = \"22:00-06:00\"";
        look.allow = AllowFile::Read(parse("allow.toml", text).unwrap());
        for (minute, fine) in [(22 * 60, true), (0, true), (6 * 60, false), (12 * 60, false)] {
            look.minute = minute;
            let checked = check(&look, BOOTS, 1);
            assert_eq!(checked.is_ok(), fine, "{minute}");
            let hint = checked.err().map(|refused| refused.hint.unwrap());
            assert_eq!(hint.as_deref(), (!fine).then_some("Start the study at 22:00 UTC or later"));
        }
        look.minute = 12 * 60;
        let hint = check(&look, BOOTS, 12).unwrap_err().hint.unwrap();
        assert!(
            hint.contains("from 22:00 UTC:") && hint.contains("reboots-per-day = 12\nhours-utc = \"22:00-06:00\""),
            "{hint}"
        );
        look.minute = 0;
        look.reboots_today = 3;
        check(&look, BOOTS, 7).unwrap();
        let refused = check(&look, BOOTS, 8).unwrap_err().to_string();
        assert!(
            refused.contains("allows 10 reboots a day, 3 were made in the last 24 hours, and the study needs 8 more")
        );
        look.on_battery = true;
        assert!(check(&look, BOOTS, 1).unwrap_err().to_string().contains("runs on battery power"));
        check(&look, Demands { settings: true, boots: false }, 0).unwrap();
    }

    #[test]
    fn what_is_wrong_with_the_file_is_said_with_its_line() {
        for (text, want) in [
            ("allow = [\"reboot\"]", "allow.toml:1"),
            ("alow = []", "Unknown key `alow`"),
            ("hours-utc = \"late\"", "such as \"22:00-06:00\""),
            ("hours-utc = \"25:00-06:00\"", "such as \"22:00-06:00\""),
            ("\nreboots-per-day = \"many\"", "allow.toml:2"),
        ] {
            let refused = parse("allow.toml", text).unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }
}
