//! A layout drawn from a seed: the linker script of a tree with other gaps and another order of the objects' code and data.
//!
//! Invariant: only sections move whose order means nothing (an object's `.text`, `.rodata`, `.data` and `.bss`). Tables that the linker collects, and
//! whose order does mean something (initcalls, per-CPU data, exception tables), have sections of their own and stay as they are.

use bigiron_stats::order::{ChaCha12Rng, Rng as _, rng, shuffle};

/// Counts up when the same seed gives another layout: images of an older one are then linked again.
pub(super) const VERSION: u32 = 1;

/// The sections that move: output section, and input section.
const MOVED: [&str; 4] = [".text", ".rodata", ".data", ".bss"];

/// Gaps are multiples of a cache line, below four pages.
const LINE: u64 = 64;
const LINES: u64 = 4 * 4096 / LINE;

/// The script with the layout of `seed`; `objects` are those of the link.
///
/// # Errors
/// The sections that the script does not have.
pub(super) fn apply(script: &str, objects: &[String], seed: u64) -> Result<String, Vec<&'static str>> {
    let rng = &mut rng(seed);
    let mut sorted: Vec<&String> = objects.iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut edits: Vec<(usize, String)> = Vec::new();
    let mut missing = Vec::new();
    for section in MOVED {
        let drawn = moved(section, &sorted, rng);
        match statement(script, section) {
            Some((at, names)) => edits.push((at, drawn.replace("NAMES", names))),
            None => missing.push(section),
        }
    }
    // `.rodata` may be of another name in a script without it; code and data are in all.
    if missing.iter().any(|section| [".text", ".data"].contains(section)) {
        return Err(missing);
    }
    edits.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut text = script.to_owned();
    for (at, inserted) in edits {
        text.insert_str(at, &inserted);
    }
    Ok(text)
}

/// A gap, and the objects in random order; `NAMES` stands for the input sections.
fn moved(section: &str, objects: &[&String], rng: &mut ChaCha12Rng) -> String {
    let gap = LINE * (rng.next_u64() % LINES);
    let mut order = objects.to_vec();
    shuffle(&mut order, rng);
    let mut text = format!("\n /* layout of {section} */ . = . + {gap};\n");
    for object in order {
        // With a wildcard, a name is looked for among the inputs and never opened as one more.
        text.push_str(&format!(" *{object}(NAMES)\n"));
    }
    text
}

/// The place of the statement `*(SECTION …)` in the output section of the same name, and the input sections that it names.
fn statement<'s>(script: &'s str, section: &str) -> Option<(usize, &'s str)> {
    let mut from = 0;
    let output = loop {
        let at = from + script[from..].find(section)?;
        let before = script[..at].chars().next_back().is_none_or(char::is_whitespace);
        let after = script[at + section.len()..].trim_start();
        if before && after.starts_with(':') {
            break at;
        }
        from = at + section.len();
    };
    let mut from = output;
    loop {
        let at = from + script[from..].find("*(")?;
        let names = script[at + 2..].split(')').next()?;
        if names.split_whitespace().next() == Some(section) && !names.contains('(') {
            return Some((at, names));
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "SECTIONS\n{\n . = 0x1000;\n .text : AT(ADDR(.text) - 0) { _text = .; *(.head.text)\n *(.text.hot .text.hot.*) \
         *(.text .text.fixup) *(.text.unlikely) }\n .rodata : { *(.rodata) *(.rodata.*) }\n .init.data : { *(.init.data) KEEP(*(.initcall1.init)) }\n \
         .data : { *(.data..page_aligned) *(.data) *(.ref.data) }\n .data..percpu : { *(.data..percpu) }\n .bss : { *(.bss..page_aligned) *(.bss) *(COMMON) }\n}\n";

    fn objects() -> Vec<String> {
        (0..20).map(|n| format!("kernel/o{n}.o")).collect()
    }

    /// The order of the objects before the statement of a section.
    fn order(text: &str, names: &str) -> Vec<String> {
        let end = format!("({names})");
        text.lines().filter_map(|line| Some(line.trim().strip_suffix(&end)?.strip_prefix('*')?.to_owned())).collect()
    }

    #[test]
    fn a_seed_decides_gaps_and_orders() {
        let one = apply(SCRIPT, &objects(), 1).unwrap();
        assert_eq!(one, apply(SCRIPT, &objects(), 1).unwrap());
        let two = apply(SCRIPT, &objects(), 2).unwrap();
        for names in [".text .text.fixup", ".rodata", ".data", ".bss"] {
            let mut found = order(&one, names);
            assert_ne!(found, order(&two, names));
            found.sort_unstable();
            let mut all = objects();
            all.sort_unstable();
            assert_eq!(found, all, "{names}: {one}");
        }
        // The order in which objects are listed is not part of a layout.
        let reversed: Vec<String> = objects().into_iter().rev().collect();
        assert_eq!(one, apply(SCRIPT, &reversed, 1).unwrap());
    }

    #[test]
    fn everything_else_stays() {
        let text = apply(SCRIPT, &objects(), 3).unwrap();
        let is_drawn = |line: &&str| line.contains("layout of") || line.trim_start().starts_with("*kernel/");
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let rest: Vec<&str> = text.lines().filter(|line| !is_drawn(line)).collect();
        assert_eq!(squeezed(&rest.join("\n")), squeezed(SCRIPT));
        // The gap and the objects stand between hot code, which has its own place, and what is left.
        let gap = text.find("layout of .text").unwrap();
        assert!(text.find(".text.hot.*").unwrap() < gap && gap < text.find("*(.text .text.fixup)").unwrap());
        for line in text.lines().filter(|line| line.contains("layout of")) {
            let gap: u64 = line.rsplit_once("+ ").unwrap().1.trim_end_matches(';').parse().unwrap();
            assert!(gap.is_multiple_of(LINE) && gap < LINES * LINE);
        }
    }

    #[test]
    fn a_script_without_code_or_data_is_not_a_kernels() {
        assert_eq!(apply("SECTIONS { .text : { *(.text) } }", &[], 1), Err(vec![".rodata", ".data", ".bss"]));
        assert!(apply("SECTIONS { .text : { *(.text) } .data : { *(.data) } }", &[], 1).is_ok());
        assert!(apply("", &[], 1).is_err());
    }
}
