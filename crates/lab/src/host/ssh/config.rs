//! What the user has configured for targets: `$XDG_CONFIG_HOME/bigiron/hosts.toml`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bigiron_model::document;
use bigiron_model::refusal::Refusal;

/// How long a machine may take to come back: servers test their memory for minutes.
const BOOT_LIMIT: u64 = 900;

/// The configuration of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The command that turns the machine off and on again.
    pub power: Option<String>,
    /// The configuration of OpenSSH to use instead of the user's.
    pub ssh_config: Option<PathBuf>,
    pub boot_limit: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { power: None, ssh_config: None, boot_limit: Duration::from_secs(BOOT_LIMIT) }
    }
}

/// Where the file is; `None` if there is no home folder.
pub fn path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let config =
        set("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute()).or_else(|| set("HOME").map(|d| d.join(".config")));
    config.map(|dir| dir.join("bigiron/hosts.toml"))
}

/// The configuration of the target `name`; the default if the file has none.
///
/// # Errors
/// The file is wrong.
pub fn read(name: &str) -> Result<HostConfig, Refusal> {
    let Some(path) = path() else { return Ok(HostConfig::default()) };
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text, name),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(HostConfig::default()),
        Err(e) => Err(Refusal::new(format!("Cannot read `{}`: {e}", path.display()))),
    }
}

fn parse(path: &Path, text: &str, name: &str) -> Result<HostConfig, Refusal> {
    let root = document::parse(&path.display().to_string(), text, "a configuration of hosts")?;
    let mut config = HostConfig::default();
    let Some((_, value)) = root.items().iter().find(|(key, _)| key.text == name) else { return Ok(config) };
    let table = value.table()?;
    table.only(&["power", "ssh-config", "boot-limit"])?;
    config.power = table.get("power").map(|v| v.string()).transpose()?;
    config.ssh_config = table.get("ssh-config").map(|v| v.string()).transpose()?.map(PathBuf::from);
    if let Some(limit) = table.get("boot-limit") {
        let seconds: u64 = limit.integer()?;
        if !(30..=86_400).contains(&seconds) {
            return Err(limit.cannot_be("from 30 to 86400 seconds"));
        }
        config.boot_limit = Duration::from_secs(seconds);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_table() {
        let text =
            "[db3]\npower = \"ipmitool power cycle\"\nboot-limit = 60\n\n[\"root@10.0.0.7\"]\nssh-config = \"/x\"\n";
        let of = |name| parse(Path::new("hosts.toml"), text, name).unwrap();
        assert_eq!(of("db3").power.as_deref(), Some("ipmitool power cycle"));
        assert_eq!(of("db3").boot_limit, Duration::from_secs(60));
        assert_eq!(of("root@10.0.0.7").ssh_config, Some(PathBuf::from("/x")));
        assert_eq!(of("other"), HostConfig::default());
        for (text, want) in [
            ("[db3]\npwer = \"x\"", "hosts.toml:2"),
            ("[db3]\nboot-limit = 3", "from 30 to 86400 seconds"),
            ("db3 = 3", "hosts.toml:1"),
        ] {
            let refused = parse(Path::new("hosts.toml"), text, "db3").unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }
}
