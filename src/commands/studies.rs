//! `bigiron studies`.

use super::output;
use crate::cli::Studies;
use crate::study::ready_made;

pub(super) fn run(args: &Studies) -> anyhow::Result<u8> {
    if let Some(name) = &args.name {
        output::data(ready_made::find(name)?.text)?;
        return Ok(0);
    }
    let mut text = String::new();
    for study in ready_made::ALL {
        text.push_str(&format!("{:<27}{}\n", study.name, study.question()));
    }
    output::data(&text)?;
    output::note("`bigiron run NAME` runs one; `bigiron doc NAME` describes most of them");
    Ok(0)
}
