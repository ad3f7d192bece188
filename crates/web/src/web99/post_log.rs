//! The log of the POSTs that a server has answered.
//!
//! Invariant: a record is appended whole, under a lock, with the number after the last one's; one that does not fit is removed again.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use bigiron_sys::load::rng::SplitMix64;

/// Bytes of a record: eight numbers and the file's path.
const RECORD: usize = 100;

/// What a POST tells the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The number of the file, as in the list of documents.
    pub document: usize,
    pub client: u32,
    pub user: u16,
    /// The last advertisement that the client has seen.
    pub ad: u16,
}

/// Posts without their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posts {
    pub count: u64,
    sum: u64,
}

impl Posts {
    pub fn add(&mut self, posted: &Posted) {
        self.join(Self { count: 1, sum: posted.digest() });
    }

    pub fn join(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl Posted {
    /// The body of the request.
    pub fn form(&self) -> String {
        format!("document={}&client={}", self.document, self.client)
    }

    /// The cookie of the request.
    pub fn cookie(&self) -> String {
        format!("user={}&ad={}", self.user, self.ad)
    }

    /// A form and its cookie.
    pub fn parse(form: &str, cookie: &str) -> Option<Self> {
        let (document, client) = form.strip_prefix("document=")?.split_once("&client=")?;
        let (user, ad) = read_cookie(cookie)?;
        Some(Self { document: document.parse().ok()?, client: client.parse().ok()?, user, ad })
    }

    fn digest(&self) -> u64 {
        SplitMix64::stream(0, &(self.form() + &self.cookie())).next()
    }
}

/// The user and the last advertisement of a request's cookie.
pub fn read_cookie(cookie: &str) -> Option<(u16, u16)> {
    let (user, ad) = cookie.strip_prefix("user=")?.split_once("&ad=")?;
    Some((user.parse().ok()?, ad.parse().ok()?))
}

/// Appends a record; `path` is the file's that the POST is about.
///
/// # Errors
/// The disk is full, or the log is gone.
pub fn append(log: &Path, posted: &Posted, path: &str) -> Result<()> {
    let cannot = || format!("Cannot write the log of POSTs {}", log.display());
    let mut file = File::options().append(true).open(log).with_context(cannot)?;
    flock(&file, FlockOperation::LockExclusive).with_context(cannot)?;
    let end = file.metadata().with_context(cannot)?.len();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let Posted { document, client, user, ad } = posted;
    let (number, pid) = (end / RECORD as u64 + 1, std::process::id());
    let line = format!("{number:>10} {time:>10} {pid:>8} {document:>7} {path:<22} {client:>10} {user:>5} {ad:>4}");
    // One that is written in part is no record.
    let written = file.write_all(format!("{line:<width$}\n", width = RECORD - 1).as_bytes());
    if written.is_err() {
        let _ = file.set_len(end);
    }
    written.with_context(cannot)
}

/// Counts the records.
///
/// # Errors
/// The log cannot be read, or one of its records is none.
pub fn count(log: &Path) -> Result<Posts> {
    let file = File::open(log).with_context(|| format!("Cannot read {}", log.display()))?;
    let (mut posts, mut record) = (Posts::default(), [0; RECORD]);
    let length = fs::metadata(log)?.len();
    for number in 0..length.div_ceil(RECORD as u64) {
        let read = file.read_exact_at(&mut record, number * RECORD as u64).ok();
        let posted = read.and_then(|()| read_record(&record, number + 1));
        posts.add(&posted.with_context(|| {
            format!("Record {} of the log of POSTs is damaged: `{}`", number + 1, record.escape_ascii())
        })?);
    }
    Ok(posts)
}

fn read_record(record: &[u8], number: u64) -> Option<Posted> {
    let mut words = str::from_utf8(record).ok()?.split_ascii_whitespace();
    (words.next()?.parse() == Ok(number)).then_some(())?;
    let (document, client) = (words.nth(2)?.parse().ok()?, words.nth(1)?.parse().ok()?);
    Some(Posted { document, client, user: words.next()?.parse().ok()?, ad: words.next()?.parse().ok()? })
}

/// Checks that the log has the POSTs that clients `sent`, each once.
///
/// # Errors
/// What it has instead.
pub fn check(log: &Path, sent: Posts) -> Result<()> {
    let logged = count(log)?;
    let (count, found) = (sent.count, logged.count);
    ensure!(count == found, "The server answered {count} POSTs, but its log has {found}");
    ensure!(sent == logged, "The server's log has {found} POSTs, but not those that clients sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use bigiron_workload::testing::SmallDisk;

    use super::*;

    fn posted(document: usize) -> Posted {
        Posted { document, client: 4_294_967_295, user: 4095, ad: 359 }
    }

    #[test]
    fn posts_of_several_threads_are_all_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "").unwrap();
        let mut sent = Posts::default();
        thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..50 {
                        append(log, &posted(thread * 50 + n), "/dir00000/class0_1").unwrap();
                    }
                });
            }
        });
        (0..200).for_each(|n| sent.add(&posted(n)));
        check(&log, sent).unwrap();
        let said = check(&log, Posts::default()).unwrap_err().to_string();
        assert_eq!(said, "The server answered 0 POSTs, but its log has 200");
        let mut others = Posts::default();
        (1..201).for_each(|n| others.add(&posted(n)));
        assert!(check(&log, others).unwrap_err().to_string().contains("not those that clients sent"));
        // A record that was overwritten, one that is incomplete, and one that is there twice.
        let whole = fs::read_to_string(&log).unwrap();
        for damaged in
            [whole.replacen(" 7 ", " x ", 1), whole[..RECORD + 5].to_owned(), whole.clone() + &whole[..RECORD]]
        {
            fs::write(&log, damaged).unwrap();
            assert!(check(&log, sent).unwrap_err().to_string().contains("is damaged"));
        }
    }

    #[test]
    fn a_form_is_read_as_it_was_written() {
        let one = posted(1_000_000);
        assert_eq!(Posted::parse(&one.form(), &one.cookie()), Some(one));
        for (form, cookie) in
            [("document=1", "user=1&ad=2"), ("document=1&client=2", ""), ("document=-1&client=2", "user=1&ad=2")]
        {
            assert_eq!(Posted::parse(form, cookie), None);
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::mount(folder.path(), "1m") else { return };
        let log = disk.0.join("log");
        fs::write(&log, "").unwrap();
        append(&log, &posted(1), "/dir00000/class0_1").unwrap();
        disk.fill(0);
        let mut sent = Posts::default();
        sent.add(&posted(1));
        let error = loop {
            match append(&log, &posted(2), "/dir00000/class0_1") {
                Ok(()) => sent.add(&posted(2)),
                Err(error) => break format!("{error:#}"),
            }
        };
        assert!(
            error.contains("Cannot write the log of POSTs") && error.contains("No space left on device"),
            "{error}"
        );
        check(&log, sent).unwrap();
    }
}
