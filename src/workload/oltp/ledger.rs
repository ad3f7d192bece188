//! The driver's ledger: what it was told was committed, to be held against the database after a crash.
//!
//! Invariant: an entry is in the file before its transaction counts. The file is a shared mapping: what was appended outlives the driver, which
//! may be killed at any time, and costs no system call; it does not outlive the driver's kernel, which does not crash in these tests.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate};

use super::input::{Input, Request};
use super::output::Output;
use crate::sys::shared_memory::SharedMemory;

/// Bytes of a record: its last four are the CRC-32C of the others. A record of zeroes is the end.
const RECORD: usize = 32;
const MAGIC: [u8; 8] = *b"OLTPLG01";
/// Bytes of the first mapping; each time it is full it doubles.
const FIRST: usize = 64 << 10;

/// What has to be in the database, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    NewOrder {
        warehouse: u32,
        district: u32,
        order: u32,
        customer: u32,
        lines: u32,
    },
    Payment {
        warehouse: u32,
        district: u32,
        customer_warehouse: u32,
        customer_district: u32,
        customer: u32,
        amount: u32,
    },
    Delivery {
        warehouse: u32,
        delivered: u32,
    },
    /// The connection broke before there was an answer: committed or not.
    Unknown,
}

/// One transaction that writes. Its date is unique in a run, and all its rows bear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub date: i64,
    pub fact: Fact,
}

impl Entry {
    /// Of an answered request; nothing if it left no rows behind.
    pub fn answered(request: &Request, output: &Output) -> Option<Self> {
        let fact = match (&request.input, output) {
            (Input::NewOrder { warehouse, district, customer, lines }, Output::NewOrder { order, .. }) => {
                Fact::NewOrder {
                    warehouse: *warehouse,
                    district: *district,
                    order: *order,
                    customer: *customer,
                    lines: lines.len() as u32,
                }
            }
            (
                Input::Payment { warehouse, district, customer_warehouse, customer_district, amount, .. },
                Output::Payment { customer, .. },
            ) => Fact::Payment {
                warehouse: *warehouse,
                district: *district,
                customer_warehouse: *customer_warehouse,
                customer_district: *customer_district,
                customer: *customer,
                amount: *amount,
            },
            (Input::Delivery { warehouse, .. }, Output::Delivery { delivered }) if *delivered > 0 => {
                Fact::Delivery { warehouse: *warehouse, delivered: *delivered }
            }
            _ => return None,
        };
        Some(Self { date: request.date, fact })
    }

    /// Of a request whose connection broke; nothing if it would have left no rows behind.
    pub fn unknown(request: &Request) -> Option<Self> {
        let writes = matches!(request.input, Input::NewOrder { .. } | Input::Payment { .. } | Input::Delivery { .. });
        (writes && !request.input.must_roll_back()).then_some(Self { date: request.date, fact: Fact::Unknown })
    }

    fn encode(&self) -> [u8; RECORD] {
        let (bytes, words) = match self.fact {
            Fact::NewOrder { warehouse, district, order, customer, lines } => {
                ([1, district, 0, lines], [warehouse, 0, customer, order])
            }
            Fact::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
                ([2, district, customer_district, 0], [warehouse, customer_warehouse, customer, amount])
            }
            Fact::Delivery { warehouse, delivered } => ([3, 0, 0, delivered], [warehouse, 0, 0, 0]),
            Fact::Unknown => ([4, 0, 0, 0], [0; 4]),
        };
        let mut record = [0; RECORD];
        // Districts, lines and deliveries are all below 256.
        record[..4].copy_from_slice(&bytes.map(|n| n as u8));
        for (slot, word) in record[4..20].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        record[20..28].copy_from_slice(&self.date.to_le_bytes());
        seal(record)
    }

    fn decode(record: &[u8; RECORD]) -> Option<Self> {
        let byte = |i: usize| u32::from(record[i]);
        let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
        let fact = match record[0] {
            1 => Fact::NewOrder {
                warehouse: word(4),
                district: byte(1),
                order: word(16),
                customer: word(12),
                lines: byte(3),
            },
            2 => Fact::Payment {
                warehouse: word(4),
                district: byte(1),
                customer_warehouse: word(8),
                customer_district: byte(2),
                customer: word(12),
                amount: word(16),
            },
            3 => Fact::Delivery { warehouse: word(4), delivered: byte(3) },
            4 => Fact::Unknown,
            _ => return None,
        };
        let date = i64::from(word(20)) | i64::from(word(24)) << 32;
        (*record == seal(*record)).then_some(Self { date, fact })
    }
}

fn seal(mut record: [u8; RECORD]) -> [u8; RECORD] {
    let sum = crc32c::crc32c(&record[..RECORD - 4]);
    record[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The ledger of one driver thread.
pub struct Ledger {
    file: File,
    memory: SharedMemory,
    used: usize,
}

impl Ledger {
    /// A new file; `in_flight` is how many transactions may be without an answer at any time: the connections of this thread.
    ///
    /// # Errors
    /// The file exists, cannot be made, or has no room.
    pub fn create(path: &Path, in_flight: u32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let memory = map(&file, FIRST)?;
        let mut head = [0; RECORD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&in_flight.to_le_bytes());
        memory.copy_in(0, &seal(head));
        Ok(Self { file, memory, used: RECORD })
    }

    /// Appends; the entry is safe from a kill of this process when it returns.
    ///
    /// # Errors
    /// The file cannot grow.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        if self.used == self.memory.len() {
            self.memory = map(&self.file, self.used * 2)?;
        }
        self.memory.copy_in(self.used, &entry.encode());
        self.used += RECORD;
        Ok(())
    }
}

/// With its blocks: storing into a hole of a full disk would be a SIGBUS.
fn map(file: &File, len: usize) -> io::Result<SharedMemory> {
    fallocate(file, FallocateFlags::empty(), 0, len as u64)?;
    SharedMemory::of_file(len, file.as_fd())
}

/// What a driver thread had written down when it ended or was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub in_flight: u32,
    pub entries: Vec<Entry>,
}

impl Account {
    /// Reads a ledger. A last record that was cut short is none: what it says did not count yet.
    ///
    /// # Errors
    /// The file is no ledger, or is damaged elsewhere than at its end.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("Cannot read the ledger {}", path.display()))?;
        let (records, _) = bytes.as_chunks::<RECORD>();
        let head = records.first().filter(|head| head.starts_with(&MAGIC) && **head == seal(**head));
        let Some(head) = head else { bail!("{} is no ledger of oltp", path.display()) };
        let in_flight = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let used = records.iter().rposition(|record| record != &[0; RECORD]).unwrap_or(0) + 1;
        let mut entries = Vec::with_capacity(used);
        for (index, record) in records.iter().enumerate().take(used).skip(1) {
            match Entry::decode(record) {
                Some(entry) => entries.push(entry),
                None if index + 1 == used => {}
                None => bail!("Record {index} of {} is damaged", path.display()),
            }
        }
        Ok(Self { in_flight, entries })
    }

    /// Those of all threads of a run together.
    pub fn merge(accounts: impl IntoIterator<Item = Self>) -> Self {
        accounts.into_iter().fold(Self::default(), |mut all, one| {
            all.in_flight += one.in_flight;
            all.entries.extend(one.entries);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use super::*;

    fn entries(count: u32) -> Vec<Entry> {
        (0..count)
            .map(|n| Entry {
                date: i64::from(n) * 7_000_000_019 - 3,
                fact: match n % 4 {
                    0 => Fact::NewOrder { warehouse: n, district: 10, order: 3001 + n, customer: 2999, lines: 15 },
                    1 => Fact::Payment {
                        warehouse: n,
                        district: 1,
                        customer_warehouse: 70_000,
                        customer_district: 2,
                        customer: 3000,
                        amount: 500_000,
                    },
                    2 => Fact::Delivery { warehouse: 5, delivered: 10 },
                    _ => Fact::Unknown,
                },
            })
            .collect()
    }

    #[test]
    fn what_is_appended_is_read_while_the_writer_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut ledger = Ledger::create(&path, 8).unwrap();
        assert_eq!(Account::read(&path).unwrap(), Account { in_flight: 8, entries: vec![] });
        // More than two doublings.
        let entries = entries(10_000);
        for entry in &entries {
            ledger.append(entry).unwrap();
        }
        assert_eq!(Account::read(&path).unwrap(), Account { in_flight: 8, entries });
        assert!(Ledger::create(&path, 8).is_err());
    }

    #[test]
    fn a_torn_last_record_is_left_out_and_one_before_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut ledger = Ledger::create(&path, 1).unwrap();
        let entries = entries(5);
        for entry in &entries {
            ledger.append(entry).unwrap();
        }
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut tear = |record: u64| {
            file.seek(SeekFrom::Start(record * RECORD as u64 + 16)).unwrap();
            file.write_all(&[0xee; 4]).unwrap();
        };
        tear(5);
        assert_eq!(Account::read(&path).unwrap().entries, entries[..4]);
        tear(2);
        assert!(Account::read(&path).unwrap_err().to_string().contains("Record 2"));
    }
}
