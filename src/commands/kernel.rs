//! `bigiron kernel`.

use crate::registry;
use std::fmt::Write as _;

use super::output;
use crate::cli::KernelAction;
use crate::conduct::environment::refuse;
use bigiron_archive::KernelError;
use bigiron_archive::spec::KernelSpec;
use bigiron_archive::store::Store;
use bigiron_model::refusal::Refusal;

pub(super) fn run(action: KernelAction) -> anyhow::Result<u8> {
    let store = Store::open().map_err(refuse)?;
    match action {
        KernelAction::Fetch { kernels } => {
            for text in kernels {
                let kernel =
                    store.resolve(&KernelSpec::parse(&text).map_err(refuse)?, &output::note).map_err(refuse)?;
                let package = kernel.identity.package.map_or_else(String::new, |p| format!("  {p}"));
                output::data(&format!("{text}  {}{package}", kernel.identity.release))?;
            }
        }
        KernelAction::Add { name, kernel, image, modules, config } => {
            if registry::find(&name).is_some() {
                return Err(Refusal::new(format!("`{name}` is a workload; a kernel needs another name")).into());
            }
            let spec = match (kernel, image) {
                (_, Some(image)) => KernelSpec::Image { image, modules },
                (Some(kernel), None) => KernelSpec::parse(&kernel).map_err(refuse)?,
                (None, None) => return Err(Refusal::new("No kernel to add; name one or give `--image`").into()),
            };
            let entry = store.add(&name, &spec, config.as_deref(), &output::note).map_err(refuse)?;
            output::data(&format!("{name}  {}", entry.release))?;
        }
        KernelAction::List => output::data(&list(&store)?)?,
        KernelAction::Remove { kernels } => {
            for what in kernels {
                let removed = store.remove(&what).map_err(refuse)?;
                let releases: Vec<&str> = removed.iter().map(|e| e.release.as_str()).collect();
                match &releases[..] {
                    [] => output::note(&format!("Removed the name `{what}`; its kernel is kept")),
                    _ => output::note(&format!("Removed {}", releases.join(", "))),
                }
            }
        }
    }
    Ok(0)
}

fn list(store: &Store) -> Result<String, KernelError> {
    let entries = store.list()?;
    if entries.is_empty() {
        output::note("No kernels yet; `bigiron kernel fetch debian:6.12` fetches one");
        return Ok(String::new());
    }
    let mut rows = vec![["release", "name", "requested as", "modules", "size", "from"].map(str::to_owned)];
    for e in entries {
        let size = format!("{:.0} MB", e.bytes as f64 / 1e6);
        rows.push([e.release, e.names.join(", "), e.spec, e.modules.to_string(), size, e.package.unwrap_or(e.from)]);
    }
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}
