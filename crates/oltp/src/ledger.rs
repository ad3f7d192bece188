//! The driver's ledger: the commits acknowledged to it, for comparison with the database after a crash.
//!
//! Invariant: an entry has left the driver before its transaction counts. Its destination decides what it outlives: a file on
//! this machine outlives the driver, a port of a virtual machine outlives that machine's kernel.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Error, Result, bail};

use super::check::Marks;
use super::input::{Input, Request};
use super::output::Output;
use bigiron_workload::AckSink;

/// Bytes of a record: the last four are the CRC-32C of the rest.
const RECORD: usize = 32;
const MAGIC: [u8; 8] = *b"OLTPLG02";
/// First byte of a district's mark; smaller values are entries.
const MARK: u8 = 16;

/// An effect that must be in the database, or may be.
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
    /// The connection broke before a response: committed or not.
    Unknown,
}

/// One write transaction. Its date is unique in a run, and all its rows have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub date: i64,
    pub fact: Fact,
}

impl Entry {
    /// The entry for an answered request; `None` if it left no rows.
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

    /// The entry for a request whose connection broke; `None` if it would have left no rows.
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

    /// Decodes a record, if it is whole.
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
        Some(Self { date, fact })
    }
}

fn seal(mut record: [u8; RECORD]) -> [u8; RECORD] {
    let sum = crc32c::crc32c(&record[..RECORD - 4]);
    record[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// A ledger that is being written by all driver threads.
pub struct Stream {
    /// With the reason why it failed to accept an entry, if it did.
    sink: Mutex<(Box<dyn AckSink>, Option<Error>)>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    /// Begins with the state before the run. `in_flight` is the maximum number of outstanding transactions at any time: the
    /// connections.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn begin(mut sink: Box<dyn AckSink>, in_flight: u32, marks: &Marks) -> Result<Self> {
        let mut bytes = Vec::with_capacity(RECORD * (1 + marks.next.len()));
        let mut head = [0; RECORD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&in_flight.to_le_bytes());
        head[12..20].copy_from_slice(&marks.latest.to_le_bytes());
        head[20..28].copy_from_slice(&marks.payments.to_le_bytes());
        bytes.extend(seal(head));
        for (warehouse, district, next) in &marks.next {
            let mut mark = [0; RECORD];
            mark[0] = MARK;
            for (slot, word) in mark[4..16].chunks_exact_mut(4).zip([warehouse, district, next]) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
            bytes.extend(seal(mark));
        }
        sink.send(&bytes)?;
        Ok(Self { sink: Mutex::new((sink, None)) })
    }

    /// Appends an entry; it has left the program when this returns. A sink that fails gets no more entries, and [`Stream::end`]
    /// returns the reason.
    pub fn append(&self, entry: &Entry) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if sink.1.is_none() {
            sink.1 = sink.0.send(&entry.encode()).err();
        }
    }

    /// Checks that every entry was accepted.
    ///
    /// # Errors
    /// That of the first entry that was not.
    pub fn end(&self) -> Result<()> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.1.take().map_or(Ok(()), |e| Err(e.context("The ledger of acknowledgements has gaps")))
    }
}

/// The driver's records when it ended or was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub in_flight: u32,
    pub entries: Vec<Entry>,
}

impl Account {
    /// Reads a ledger: the account, and the state before it. Several consecutive runs are one account. A truncated last record is
    /// ignored: its transaction did not count yet.
    ///
    /// # Errors
    /// If the file is not a ledger, or is damaged.
    pub fn read(path: &Path) -> Result<(Self, Marks)> {
        let bytes = std::fs::read(path).with_context(|| format!("Cannot read the ledger {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("The ledger {}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<(Self, Marks)> {
        let (records, _) = bytes.as_chunks::<RECORD>();
        let (mut account, mut marks) = (Self::default(), Marks { next: Vec::new(), payments: 0, latest: 0 });
        let mut runs = 0;
        for (index, record) in records.iter().enumerate() {
            if *record != seal(*record) {
                bail!("Record {index} is damaged");
            }
            let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
            let long = |i: usize| u64::from(word(i)) | u64::from(word(i + 4)) << 32;
            match Entry::decode(record) {
                _ if record.starts_with(&MAGIC) => {
                    runs += 1;
                    account.in_flight += word(8);
                    if runs == 1 {
                        (marks.latest, marks.payments) = (long(12).cast_signed(), long(20));
                    }
                }
                _ if runs == 0 => bail!("It does not begin like a ledger of oltp"),
                _ if record[0] == MARK => {
                    if runs == 1 {
                        marks.next.push((word(4), word(8), word(12)));
                    }
                }
                Some(entry) => account.entries.push(entry),
                None => bail!("Record {index} is of an unknown kind"),
            }
        }
        if runs == 0 {
            bail!("It does not begin like a ledger of oltp");
        }
        Ok((account, marks))
    }

    /// The latest date of its entries.
    pub fn latest(&self) -> Option<i64> {
        self.entries.iter().map(|entry| entry.date).max()
    }
}

/// Number of whole entries in this many bytes of a ledger of one run, with the marks of this many districts.
pub fn entries_in(bytes: u64, districts: u64) -> u64 {
    (bytes / RECORD as u64).saturating_sub(1 + districts)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

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

    fn marks() -> Marks {
        Marks { next: vec![(1, 1, 3001), (70_000, 10, 9)], payments: 60_000, latest: -5 }
    }

    fn stream(path: &Path) -> Stream {
        let file = File::options().create(true).append(true).open(path).unwrap();
        Stream::begin(Box::new(file), 8, &marks()).unwrap()
    }

    #[test]
    fn what_is_appended_is_read_while_the_writer_lives_and_runs_add_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let entries = entries(1_000);
        let first = stream(&path);
        assert_eq!(Account::read(&path).unwrap(), (Account { in_flight: 8, entries: vec![] }, marks()));
        entries[..600].iter().for_each(|entry| first.append(entry));
        assert_eq!(Account::read(&path).unwrap().0.entries, entries[..600]);
        assert_eq!(entries_in(std::fs::metadata(&path).unwrap().len(), 2), 600);
        let second = stream(&path);
        entries[600..].iter().for_each(|entry| second.append(entry));
        let (account, since) = Account::read(&path).unwrap();
        assert_eq!((account.in_flight, since), (16, marks()));
        assert_eq!(account.latest(), entries.iter().map(|e| e.date).max());
        assert_eq!(account.entries, entries);
        first.end().and_then(|()| second.end()).unwrap();
    }

    #[test]
    fn a_record_that_was_cut_short_is_left_out_and_a_damaged_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let (ledger, entries) = (stream(&path), entries(5));
        entries.iter().for_each(|entry| ledger.append(entry));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 1);
        assert_eq!(Account::parse(&bytes).unwrap().0.entries, entries[..4]);
        bytes[RECORD * 4 + 16] ^= 1;
        assert!(Account::parse(&bytes).unwrap_err().to_string().contains("Record 4"));
        assert!(Account::parse(&bytes[RECORD..RECORD * 4]).is_err() && Account::parse(&[]).is_err());
    }

    #[test]
    fn a_sink_that_refuses_is_told_of_at_the_end() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(Stream::begin(Box::new(full), 1, &marks()).is_err());
        struct Brief(usize);
        impl AckSink for Brief {
            fn send(&mut self, _: &[u8]) -> Result<()> {
                self.0 = self.0.checked_sub(1).context("Nothing more is taken")?;
                Ok(())
            }
        }
        let ledger = Stream::begin(Box::new(Brief(2)), 1, &marks()).unwrap();
        entries(1).iter().for_each(|entry| ledger.append(entry));
        ledger.end().unwrap();
        entries(2).iter().for_each(|entry| ledger.append(entry));
        assert!(format!("{:#}", ledger.end().unwrap_err()).contains("Nothing more"));
    }
}
