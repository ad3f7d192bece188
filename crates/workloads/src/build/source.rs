//! The C text of a tree: headers, one source file for each unit, a main program, a Makefile.
//!
//! Invariant: the same arguments give the same bytes, and the compiled program prints what [`Tree::prints`] returns.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::program::{Expression, Function, LOCALS, Op, PARAMETERS, Statement, TABLE, Unit, Units, VARIABLES};

/// Source files per folder.
const FOLDER: usize = 40;
/// Entries of a unit's list, sorted by its own code.
const ENTRIES: u32 = 24;

/// A generated tree.
pub struct Tree {
    units: Units,
}

impl Tree {
    /// A tree of this many source files (besides the main program's) with this many functions each.
    pub fn new(files: usize, functions: usize) -> Self {
        Self { units: Units::draw(files, functions) }
    }

    /// Every file: its path and its text.
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![
            ("Makefile".to_owned(), MAKEFILE.to_owned()),
            ("include/base.h".to_owned(), BASE.to_owned()),
            ("main.c".to_owned(), self.main()),
        ];
        for (number, unit) in self.units.0.iter().enumerate() {
            files.push((format!("include/unit_{number:03}.h"), header(number, unit)));
            files.push((format!("part_{:02}/unit_{number:03}.c", number / FOLDER), self.source(number, unit)));
        }
        files
    }

    /// Writes the tree below `dir`, which is created.
    ///
    /// # Errors
    /// If there is no room; the message names the path.
    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        for (path, text) in self.files() {
            let path = dir.join(path);
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, text))
                .with_context(|| format!("Cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// The program's output.
    pub fn prints(&self) -> String {
        let sum = (0..self.units.0.len()).fold(0u32, |sum, n| sum.rotate_left(5) ^ self.unit(n, n as u32 * 7 + 1));
        format!("{} units, sum {sum}\n", self.units.0.len())
    }

    /// The result of the function `unit_N`.
    fn unit(&self, number: usize, seed: u32) -> u32 {
        let functions = self.units.0[number].functions.len();
        let sum = (0..functions).fold(seed, |sum, f| sum.wrapping_add(self.units.call(number, f, [sum, f as u32])));
        sum ^ self.sorted(number, sum) ^ self.hashed(number, sum)
    }

    /// The result of `sorted`: its list in order, each entry weighted by its position.
    fn sorted(&self, number: usize, seed: u32) -> u32 {
        let table = self.units.0[number].table;
        let mut entries: Vec<u32> =
            (0..ENTRIES).map(|n| (seed ^ table[n as usize % TABLE]).wrapping_mul(2 * n + 1) >> 8).collect();
        entries.sort_unstable();
        entries.iter().zip(1..).fold(0, |sum, (key, place)| sum.wrapping_mul(31).wrapping_add(key.wrapping_mul(place)))
    }

    /// The result of `hashed`: FNV-1a of a text.
    fn hashed(&self, number: usize, seed: u32) -> u32 {
        let text = format!("unit {number} of {seed}: {:08x}", self.units.0[number].table[seed as usize % TABLE]);
        text.bytes().fold(0x811c_9dc5, |hash: u32, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    fn main(&self) -> String {
        let count = self.units.0.len();
        let mut text = "#include \"base.h\"\n".to_owned();
        for n in 0..count {
            let _ = writeln!(text, "#include \"unit_{n:03}.h\"");
        }
        text += "\nstatic u32 (*const units[])(u32) = {\n";
        for n in 0..count {
            let _ = writeln!(text, "    unit_{n:03},");
        }
        let _ = write!(
            text,
            "}};\n\nint main(void)\n{{\n    u32 sum = 0, n;\n\n    for (n = 0; n < {count}; n++)\n        sum = rotate(sum, 5) ^ units[n](n * 7 + 1);\n    \
             printf(\"{count} units, sum %u\\n\", sum);\n    return 0;\n}}\n"
        );
        text
    }

    fn source(&self, number: usize, unit: &Unit) -> String {
        let mut text = format!("#include \"base.h\"\n#include \"unit_{number:03}.h\"\n");
        for other in &unit.calls {
            let _ = writeln!(text, "#include \"unit_{other:03}.h\"");
        }
        let numbers: Vec<String> = unit.table.iter().map(|n| format!("{n:#010x}u")).collect();
        let table = numbers.chunks(4).map(|l| format!("    {},\n", l.join(", "))).collect::<String>();
        let _ = write!(text, "\nstatic const u32 table[{TABLE}] = {{\n{table}}};\n");
        for (f, function) in unit.functions.iter().enumerate() {
            text += "\n";
            text += &Printer::function(number, f, function);
        }
        let _ = write!(
            text,
            r#"
static void insert(struct entry_{number:03} **list, struct entry_{number:03} *entry)
{{
    while (*list && (*list)->key < entry->key)
        list = &(*list)->next;
    entry->next = *list;
    *list = entry;
}}

static u32 sorted(u32 seed)
{{
    struct entry_{number:03} entries[{ENTRIES}], *list = NULL, *entry;
    u32 n, sum = 0, place = 1;

    for (n = 0; n < {ENTRIES}; n++) {{
        entries[n].key = (seed ^ table[n % {TABLE}]) * (2 * n + 1) >> 8;
        insert(&list, &entries[n]);
    }}
    for (entry = list; entry; entry = entry->next)
        sum = sum * 31 + entry->key * place++;
    return sum;
}}

static u32 hashed(u32 seed)
{{
    char text[64];
    const char *c;
    u32 hash = 0x811c9dc5u;

    snprintf(text, sizeof text, "unit {number} of %u: %08x", seed, table[seed % {TABLE}]);
    for (c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x01000193u;
    return hash;
}}

u32 unit_{number:03}(u32 seed)
{{
    u32 sum = seed;

"#
        );
        for f in 0..unit.functions.len() {
            let _ = writeln!(text, "    sum += unit_{number:03}_{f:02}(sum, {f});");
        }
        text += "    return sum ^ sorted(sum) ^ hashed(sum);\n}\n";
        text
    }
}

fn header(number: usize, unit: &Unit) -> String {
    let mut text = format!(
        "#ifndef UNIT_{number:03}_H\n#define UNIT_{number:03}_H\n\n#include \"base.h\"\n\nstruct entry_{number:03} {{\n    u32 key;\n    \
         struct entry_{number:03} *next;\n}};\n\nu32 unit_{number:03}(u32 seed);\n"
    );
    for f in 0..unit.functions.len() {
        let _ = writeln!(text, "u32 unit_{number:03}_{f:02}(u32 a, u32 b);");
    }
    text + "\n#endif\n"
}

const BASE: &str = r#"#ifndef BASE_H
#define BASE_H

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;

static inline u32 rotate(u32 x, unsigned n)
{
    return x << n | x >> (32 - n);
}

#endif
"#;

const MAKEFILE: &str = "CC = cc
CFLAGS = -O2 -Iinclude
OBJECTS = main.o $(patsubst %.c,%.o,$(sort $(wildcard part_*/*.c)))
HEADERS = $(sort $(wildcard include/*.h))

program: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)

%.o: %.c $(HEADERS)
\t$(CC) $(CFLAGS) -c -o $@ $<

clean:
\trm -f program $(OBJECTS)

.PHONY: clean
";

/// Prints functions.
struct Printer(String);

impl Printer {
    fn function(unit: usize, number: usize, function: &Function) -> String {
        let names = |range: std::ops::Range<usize>| range.map(|v| NAMES[v]).collect::<Vec<_>>().join(", ");
        let mut printer = Self(format!(
            "u32 unit_{unit:03}_{number:02}(u32 a, u32 b)\n{{\n    u32 {};\n    u32 {};\n\n",
            names(PARAMETERS..LOCALS),
            names(LOCALS..VARIABLES)
        ));
        printer.body(&function.body, 1);
        // Some functions have no loops of one of the depths.
        let unused = (LOCALS..VARIABLES).map(|v| format!("(void){};", NAMES[v])).collect::<Vec<_>>().join(" ");
        let _ = write!(printer.0, "    {unused}\n    return ");
        printer.expression(&function.result);
        printer.0 += ";\n}\n";
        printer.0
    }

    fn indent(&mut self, depth: usize) {
        self.0 += &"    ".repeat(depth);
    }

    fn block(&mut self, before: &str, body: &[Statement], depth: usize) {
        self.indent(depth);
        self.0 += before;
        self.0 += " {\n";
        self.body(body, depth + 1);
        self.indent(depth);
        self.0 += "}\n";
    }

    fn body(&mut self, body: &[Statement], depth: usize) {
        for statement in body {
            match statement {
                Statement::Set(to, from) => {
                    self.indent(depth);
                    let _ = write!(self.0, "{} = ", NAMES[*to]);
                    self.expression(from);
                    self.0 += ";\n";
                }
                Statement::Loop(counter, times, body) => {
                    let i = NAMES[*counter];
                    self.block(&format!("for ({i} = 0; {i} < {times}; {i}++)"), body, depth);
                }
                Statement::If([a, b], then, otherwise) => {
                    let condition = format!("if ({} < {})", self.text(a), self.text(b));
                    self.block(&condition, then, depth);
                    self.block("else", otherwise, depth);
                }
                Statement::Switch(by, cases) => {
                    self.indent(depth);
                    let _ = writeln!(self.0, "switch ({} % {}) {{", self.text(by), cases.len());
                    for (n, case) in cases.iter().enumerate() {
                        self.indent(depth);
                        let _ = writeln!(self.0, "case {n}:");
                        self.body(case, depth + 1);
                        self.indent(depth + 1);
                        self.0 += "break;\n";
                    }
                    self.indent(depth);
                    self.0 += "}\n";
                }
            }
        }
    }

    fn text(&self, expression: &Expression) -> String {
        let mut printer = Self(String::new());
        printer.expression(expression);
        printer.0
    }

    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Number(n) => {
                let _ = write!(self.0, "{n}u");
            }
            Expression::Variable(n) => self.0 += NAMES[*n],
            Expression::Table(at) => {
                let _ = write!(self.0, "table[{} % {TABLE}]", self.text(at));
            }
            Expression::Binary(Op::Rotate, a, b) => {
                let _ = write!(self.0, "rotate({}, {})", self.text(a), self.text(b));
            }
            Expression::Binary(op, a, b) => {
                let sign = match op {
                    Op::Add => "+",
                    Op::Sub => "-",
                    Op::Mul => "*",
                    Op::Xor => "^",
                    Op::And => "&",
                    Op::Or => "|",
                    Op::Shift => ">>",
                    Op::Modulo => "%",
                    Op::Rotate => unreachable!("a function of base.h"),
                };
                let _ = write!(self.0, "({} {sign} {})", self.text(a), self.text(b));
            }
            Expression::Call(unit, function, arguments) => {
                let [a, b] = &**arguments;
                let _ = write!(self.0, "unit_{unit:03}_{function:02}({}, {})", self.text(a), self.text(b));
            }
        }
    }
}

const NAMES: [&str; VARIABLES] = ["a", "b", "p", "q", "r", "s", "i", "j"];
