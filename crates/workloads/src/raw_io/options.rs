//! The parsed options of `raw-io`: the cells of the matrix.

use bigiron_model::clock::Clock;
use bigiron_model::size::{parse_bytes, print_bytes};
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_sys::async_io::{BUFFER_BYTES, EngineSpec, Method};
use bigiron_workload::{OptionDef, option};

/// Granularity of a block: the size of a stamp.
const PAGE: u64 = bigiron_sys::load::stamp::BLOCK as u64;
/// Default requests of a cell: on the wall clock, and on every other.
const REQUESTS: (u64, u64) = (4000, 256);
const PROCESSES: std::ops::RangeInclusive<usize> = 1..=256;
const DISKS: std::ops::RangeInclusive<usize> = 1..=64;
const DEPTHS: std::ops::RangeInclusive<usize> = 1..=1024;

pub const OPTIONS: &[OptionDef] = &[
    option("patterns", "sequential,random", "Where requests go: `sequential`, `random`, or both"),
    option("operations", "read,write", "What they do: `read`, `write`, or both"),
    option("engines", "sync,vectored,libaio,io_uring", "How they reach the kernel; several separated by commas"),
    option("blocks", "4K,64K", "Bytes of a request, multiples of 4K; several separated by commas"),
    option("processes", "1", "Processes that issue them in parallel; several separated by commas"),
    option("depth", "16", "Requests that a process keeps in flight with libaio and io_uring"),
    option("disks", "1", "Raw disks (or files, if the study has none) among which the processes are distributed"),
    option("size", "16M", "Bytes used of each disk"),
    option("requests", "auto", "Requests measured in each cell; `auto`: 4000 on the wall clock, else 256"),
];

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    Sequential,
    Random,
}

const PATTERNS: [(&str, Pattern); 2] = [("sequential", Pattern::Sequential), ("random", Pattern::Random)];
const OPERATIONS: [(&str, bool); 2] = [("read", false), ("write", true)];
const ENGINES: [(&str, Method); 5] = [
    ("sync", Method::Sync),
    ("vectored", Method::Vectored),
    ("threads", Method::Threads),
    ("libaio", Method::Libaio),
    ("io_uring", Method::Uring),
];

/// A cell of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The metric's name.
    pub name: String,
    pub pattern: Pattern,
    pub write: bool,
    pub engine: EngineSpec,
    pub block: usize,
    pub processes: usize,
}

/// The matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// In the order in which they run.
    pub cells: Vec<Cell>,
    pub disks: usize,
    /// Of each disk.
    pub bytes: u64,
    /// Minimum number of measured requests of each cell.
    pub requests: u64,
}

impl Matrix {
    /// Parses the options.
    ///
    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(options: &Options, clock: Clock) -> Result<Self, String> {
        let text = |name: &str| {
            let default = OPTIONS.iter().find(|o| o.name == name).map_or("", |o| o.default);
            options.get(name).map_or(default, String::as_str)
        };
        let wrong = |name: &str, right: &str| format!("`raw-io.{name}` cannot be `{}`; it can be {right}", text(name));
        let processes = list(text("processes"), |w| w.parse().ok().filter(|n| PROCESSES.contains(n)));
        let processes = processes.ok_or_else(|| wrong("processes", "numbers of 1 to 256, separated by commas"))?;
        let blocks = list(text("blocks"), |w| {
            parse_bytes(w).ok().filter(|n| *n > 0 && n.is_multiple_of(PAGE) && *n <= BUFFER_BYTES.1 as u64)
        });
        let blocks = blocks.ok_or_else(|| wrong("blocks", "multiples of 4K up to 16M, separated by commas"))?;
        let depth =
            text("depth").parse().ok().filter(|n| DEPTHS.contains(n)).ok_or_else(|| wrong("depth", "1 to 1024"))?;
        let disks =
            text("disks").parse().ok().filter(|n| DISKS.contains(n)).ok_or_else(|| wrong("disks", "1 to 64"))?;
        let bytes = parse_bytes(text("size")).ok().filter(|n| *n > 0 && n.is_multiple_of(1 << 20));
        let bytes = bytes.ok_or_else(|| wrong("size", "whole mebibytes such as `64M` or `1G`"))?;
        let requests = match text("requests") {
            "auto" => Some(if clock == Clock::Wall { REQUESTS.0 } else { REQUESTS.1 }),
            n => n.parse().ok().filter(|n| (1..=1 << 32).contains(n)),
        };
        let requests = requests.ok_or_else(|| wrong("requests", "a number, or `auto`"))?;
        let patterns = words("patterns", text("patterns"), &PATTERNS)?;
        let operations = words("operations", text("operations"), &OPERATIONS)?;
        let engines = words("engines", text("engines"), &ENGINES)?;
        let mut cells = Vec::new();
        for ((pattern, at), (operation, write)) in both(&patterns, &operations) {
            for ((engine, method), (block, count)) in both(&engines, &both(&blocks, &processes)) {
                let inline = matches!(method, Method::Sync | Method::Vectored);
                let engine_spec = EngineSpec { method, depth: if inline { 1 } else { depth }, ..EngineSpec::default() };
                let many = if processes == [1] { String::new() } else { format!("-{count}p") };
                let name = format!(
                    "{pattern}-{operation}-{}-{}{many}",
                    engine.replace("io_", ""),
                    print_bytes(block).to_lowercase()
                );
                cells.push(Cell {
                    name,
                    pattern: at,
                    write,
                    engine: engine_spec,
                    block: block as usize,
                    processes: count,
                });
            }
        }
        let matrix = Self { cells, disks, bytes, requests };
        for cell in &matrix.cells {
            let needed = cell.block as u64 * cell.engine.depth as u64 * matrix.sharers(cell) as u64;
            if needed > bytes {
                let least = print_bytes(needed.next_multiple_of(1 << 20));
                return Err(wrong(
                    "size",
                    &format!("at least {least}, so that cell `{}` has room for the requests in flight", cell.name),
                ));
            }
        }
        Ok(matrix)
    }

    /// Processes that share a disk in a cell.
    pub fn sharers(&self, cell: &Cell) -> usize {
        cell.processes.div_ceil(self.disks)
    }

    /// The most processes of any cell.
    pub fn processes(&self) -> usize {
        self.cells.iter().map(|c| c.processes).max().unwrap_or(1)
    }
}

fn both<A: Copy, B: Copy>(a: &[A], b: &[B]) -> Vec<(A, B)> {
    a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b))).collect()
}

/// Values separated by commas, each once, at least one.
fn list<T: PartialEq>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut values = Vec::new();
    for word in text.split(',') {
        let value = read(word.trim())?;
        if values.contains(&value) {
            return None;
        }
        values.push(value);
    }
    Some(values)
}

fn words<T: Copy + PartialEq>(
    name: &str,
    text: &str,
    all: &[(&'static str, T)],
) -> Result<Vec<(&'static str, T)>, String> {
    let found = list(text, |word| all.iter().find(|(w, _)| *w == word).copied());
    found.ok_or_else(|| {
        let names = suggest::list(all.iter().map(|(w, _)| *w));
        format!("`raw-io.{name}` cannot be `{text}`; it can be {names}, several separated by commas, each once")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(&str, &str)]) -> Result<Matrix, String> {
        let options = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Matrix::parse(&options, Clock::Exact)
    }

    #[test]
    fn the_matrix_has_all_cells_by_name() {
        let matrix = parse(&[]).unwrap();
        assert_eq!((matrix.cells.len(), matrix.requests), (2 * 2 * 4 * 2, 256));
        assert_eq!(matrix.cells[0].name, "sequential-read-sync-4k");
        assert_eq!(matrix.cells[0].engine.depth, 1);
        assert_eq!(matrix.cells.last().unwrap().name, "random-write-uring-64k");
        let matrix = parse(&[("processes", "1,3"), ("disks", "2"), ("engines", "libaio"), ("blocks", "8K")]).unwrap();
        assert_eq!(matrix.cells[1].name, "sequential-read-libaio-8k-3p");
        assert_eq!((matrix.sharers(&matrix.cells[1]), matrix.processes()), (2, 3));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (name, value, right) in [
            ("patterns", "zigzag", "`sequential` or `random`"),
            ("operations", "read,read", "each once"),
            ("engines", "aio", "`sync`, `vectored`, `threads`, `libaio` or `io_uring`"),
            ("blocks", "512", "multiples of 4K"),
            ("blocks", "", "multiples of 4K"),
            ("processes", "0", "1 to 256"),
            ("depth", "9999", "1 to 1024"),
            ("disks", "-1", "1 to 64"),
            ("size", "100K", "whole mebibytes"),
            ("requests", "some", "a number, or `auto`"),
        ] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert!(
                error.starts_with(&format!("`raw-io.{name}` cannot be `{value}`")) && error.contains(right),
                "{error}"
            );
        }
        assert!(parse(&[("size", "1M"), ("depth", "32")]).unwrap_err().contains("it can be at least 2M, so that cell"));
    }
}
