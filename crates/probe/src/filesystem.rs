//! The features and limits of a file system, found by experiment.
//!
//! Invariant: each answer was tested here, on the file system itself; nothing comes from a table of known limits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use bigiron_model::size;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

/// Most links to one file that are tried; a file system that accepts all of them has no relevant limit.
const LINKS: u32 = 66_000;

/// Sizes of direct-I/O requests to try, smallest first, which are also their buffers' alignment.
const DIRECT: [usize; 3] = [512, 4096, 65_536];

/// Longest value of an extended attribute that Linux passes to a file system.
const ATTRIBUTE: u64 = 65_536;

/// Longest name that fits into a path.
const NAME: u64 = 4000;

/// A size that a file system with 4 KiB blocks divides into blocks and into pages.
const PIECE: u64 = 65_536;

type Answer = Result<String, Errno>;

/// A feature's name, and the function that tests it in an empty folder.
type Feature = (&'static str, fn(&Path) -> Answer);

/// All features, in the order of a table.
const FEATURES: &[Feature] = &[
    ("largest file", largest_file),
    ("longest name", longest_name),
    ("links to a file", links),
    ("inodes", inodes),
    ("dates until", dates),
    ("direct I/O from", direct),
    ("preallocation", |dir| allocate(dir, FallocateFlags::empty())),
    ("punch a hole", |dir| allocate(dir, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ("zero a range", |dir| allocate(dir, FallocateFlags::ZERO_RANGE)),
    ("collapse a range", |dir| allocate(dir, FallocateFlags::COLLAPSE_RANGE)),
    ("find holes", find_holes),
    ("reflink", reflink),
    ("attribute up to", attribute),
    ("access lists", access_list),
    ("nameless file", nameless),
    ("exchange names", exchange),
    ("birth time", birth_time),
];

/// Tests every feature of the file system that holds `dir`, each in an empty folder below `dir`.
///
/// An answer is `no` if the file system does not support the feature, and the error's name for any other error.
pub fn features(dir: &Path) -> Vec<(&'static str, String)> {
    let one = |(number, (name, find)): (usize, &Feature)| {
        let folder = dir.join(format!("feature.{number}"));
        let answer = errno(fs::create_dir(&folder)).and_then(|()| find(&folder));
        // Some file systems keep a list of every block of a hole: the space that one test used must be free for the next, and some free it only after
        // a sync.
        let _ = fs::remove_dir_all(&folder);
        let _ = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
        (*name, answer.unwrap_or_else(refusal))
    };
    FEATURES.iter().enumerate().map(one).collect()
}

fn refusal(e: Errno) -> String {
    match e {
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => "no".to_owned(),
        e => io::Error::from(e).to_string(),
    }
}

fn errno<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

fn yes(does: bool) -> Answer {
    Ok(if does { "yes" } else { "no" }.to_owned())
}

fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags.bits().cast_signed());
    errno(options.open(path))
}

/// A file with [`PIECE`] bytes of `byte`.
fn filled(path: &Path, byte: u8) -> Result<File, Errno> {
    let mut file = open(path, OFlags::empty())?;
    errno(file.write_all(&[byte; PIECE as usize]))?;
    Ok(file)
}

/// The largest accepted number up to `most`, if all smaller ones are accepted too; 0 if none is.
fn largest(most: u64, taken: impl Fn(u64) -> bool) -> u64 {
    if taken(most) {
        return most;
    }
    let (mut good, mut bad) = (0, most);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        *(if taken(middle) { &mut good } else { &mut bad }) = middle;
    }
    good
}

/// Sets the length and then writes the last byte: some file systems accept a length whose end they cannot write.
fn largest_file(dir: &Path) -> Answer {
    let file = open(&dir.join("file"), OFlags::empty())?;
    // First by doubling: a file system that keeps a list of every block of a hole fills the disk long before its limit, and must not do that twice.
    let mut good = PIECE;
    while good < 1 << 62 {
        match errno(file.set_len(2 * good)) {
            Ok(()) => good *= 2,
            Err(Errno::NOSPC) => {
                errno(file.set_len(0))?;
                return Ok(format!("{} or more (disk full)", size::rounded(good)));
            }
            Err(_) => break,
        }
    }
    // From here on, a refusal is due to the size, and no blocks are allocated.
    let most = (2 * good).min(i64::MAX.cast_unsigned());
    let length = good + largest(most - good, |n| file.set_len(good + n).is_ok());
    errno(file.set_len(0))?;
    Ok(match errno(file.write_at(b"x", length.saturating_sub(1))) {
        Ok(1) => size::rounded(length),
        Ok(_) => format!("{} (its end is not written)", size::rounded(length)),
        Err(e) => format!("{} (its end: {})", size::rounded(length), refusal(e)),
    })
}

fn longest_name(dir: &Path) -> Answer {
    let taken = |n: u64| {
        let path = dir.join("n".repeat(n as usize));
        open(&path, OFlags::empty()).is_ok() && fs::remove_file(&path).is_ok()
    };
    Ok(format!("{} bytes", largest(NAME, taken)))
}

fn links(dir: &Path) -> Answer {
    let first = dir.join("file");
    open(&first, OFlags::empty())?;
    for n in 1..LINKS {
        match errno(fs::hard_link(&first, dir.join(n.to_string()))) {
            Ok(()) => {}
            Err(Errno::MLINK) => return Ok(n.to_string()),
            Err(e) => return Ok(format!("{n}, then: {}", refusal(e))),
        }
    }
    Ok(format!("{LINKS} or more"))
}

/// The number of inodes that the file system reports. 0 means that it does not count them.
fn inodes(dir: &Path) -> Answer {
    let total = rustix::fs::statvfs(dir)?.f_files;
    Ok(if total == 0 { "not counted".to_owned() } else { total.to_string() })
}

/// The latest date that a file can have: the kernel truncates later ones.
fn dates(dir: &Path) -> Answer {
    let file = open(&dir.join("file"), OFlags::empty())?;
    let time = Timespec { tv_sec: 1 << 40, tv_nsec: 0 };
    rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    let kept = errno(file.metadata())?.mtime();
    Ok(if kept == time.tv_sec { "no end seen".to_owned() } else { year(kept).to_string() })
}

/// The year that is this many seconds after 1970, by the mean length of a Gregorian year: wrong only for a few hours around New Year.
fn year(seconds: i64) -> i64 {
    1970 + (seconds as f64 / (365.2425 * 86_400.0)).floor() as i64
}

/// The smallest direct-I/O request that is accepted.
fn direct(dir: &Path) -> Answer {
    let path = dir.join("file");
    errno(filled(&path, 1)?.sync_all())?;
    let most = DIRECT[DIRECT.len() - 1];
    let mut room = vec![0; 2 * most];
    let aligned = room.as_ptr().align_offset(most);
    let buffer = &mut room[aligned..][..most];
    let file = match open(&path, OFlags::DIRECT) {
        Err(Errno::INVAL) => return yes(false),
        other => other?,
    };
    let takes = |n: usize, buffer: &mut [u8]| {
        let read = file.read_at(&mut buffer[..n], n as u64).is_ok_and(|done| done == n);
        read && file.write_at(&buffer[..n], n as u64).is_ok_and(|done| done == n)
    };
    // The request must fit into the file: the largest size has no second place in it.
    let fits = DIRECT.iter().filter(|n| 2 * **n as u64 <= PIECE);
    let smallest = fits.into_iter().find(|n| takes(**n, buffer));
    smallest.map_or_else(|| yes(false), |n| Ok(size::rounded(*n as u64)))
}

fn allocate(dir: &Path, mode: FallocateFlags) -> Answer {
    let file = filled(&dir.join("file"), 1)?;
    errno(file.sync_all())?;
    // Beyond the end if space is allocated, in the middle if a range is changed.
    let offset = if mode.is_empty() { PIECE } else { PIECE / 4 };
    rustix::fs::fallocate(&file, mode, offset, PIECE / 4)?;
    let length = errno(file.metadata())?.len();
    let mut middle = [1];
    errno(file.read_exact_at(&mut middle, offset))?;
    yes(match mode {
        FallocateFlags::COLLAPSE_RANGE => length == PIECE * 3 / 4,
        _ if mode.is_empty() => length == PIECE * 5 / 4,
        _ => length == PIECE && middle == [0],
    })
}

/// Whether a file that begins with a hole reports it.
fn find_holes(dir: &Path) -> Answer {
    let file = open(&dir.join("file"), OFlags::empty())?;
    errno(file.write_all_at(&[1; 4096], 16 * PIECE))?;
    errno(file.sync_all())?;
    let (hole, data) = (rustix::fs::seek(&file, SeekFrom::Hole(0))?, rustix::fs::seek(&file, SeekFrom::Data(0))?);
    yes(hole == 0 && data > 0)
}

fn reflink(dir: &Path) -> Answer {
    let from = filled(&dir.join("from"), 7)?;
    errno(from.sync_all())?;
    let mut onto = open(&dir.join("onto"), OFlags::empty())?;
    rustix::fs::ioctl_ficlone(&onto, &from)?;
    errno(from.write_all_at(&[8; 4096], 0))?;
    let mut read = Vec::new();
    errno(onto.read_to_end(&mut read))?;
    yes(read == [7; PIECE as usize])
}

fn attribute(dir: &Path) -> Answer {
    let file = open(&dir.join("file"), OFlags::empty())?;
    let set = |n: u64| rustix::fs::fsetxattr(&file, "user.bigiron", &vec![b'x'; n as usize], XattrFlags::empty());
    set(1)?;
    let longest = largest(ATTRIBUTE, |n| set(n).is_ok());
    set(longest)?;
    let kept = rustix::fs::fgetxattr_query(&file, "user.bigiron")?;
    Ok(if kept as u64 == longest { size::rounded(longest) } else { format!("{kept} of {longest} bytes come back") })
}

/// An access list with an entry in addition to owner, group and others, which a mode cannot express.
fn access_list(dir: &Path) -> Answer {
    const NAME: &str = "system.posix_acl_access";
    const NOBODY: u32 = u32::MAX;
    // Tag, permissions and id: the owner, user 1000, the group, the mask, others.
    let entries = [(0x01u16, 6u16, NOBODY), (0x02, 4, 1000), (0x04, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 4, NOBODY)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, whose) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(whose.to_le_bytes());
    }
    let file = open(&dir.join("file"), OFlags::empty())?;
    rustix::fs::fsetxattr(&file, NAME, &list, XattrFlags::empty())?;
    let mut kept = vec![0; 2 * list.len()];
    let length = rustix::fs::fgetxattr(&file, NAME, &mut kept[..])?;
    yes(kept[..length] == list)
}

fn nameless(dir: &Path) -> Answer {
    let file = rustix::fs::openat(CWD, dir, OFlags::RDWR | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(&file, b"x")?;
    yes(errno(fs::read_dir(dir))?.next().is_none())
}

fn exchange(dir: &Path) -> Answer {
    let (one, other) = (dir.join("one"), dir.join("other"));
    filled(&one, 1)?;
    filled(&other, 2)?;
    match rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
        // The answer of a file system without this feature.
        Err(Errno::INVAL) => yes(false),
        done => done.and_then(|()| yes(errno(fs::read(&one))?[0] == 2)),
    }
}

fn birth_time(dir: &Path) -> Answer {
    let path = dir.join("file");
    open(&path, OFlags::empty())?;
    let seen = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME)?;
    yes(seen.stx_mask & StatxFlags::BTIME.bits() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_is_taken_is_found() {
        for limit in [0, 1, 2, 254, 255, 256, 999, 1000] {
            assert_eq!(largest(1000, |n| n <= limit), limit);
        }
        assert_eq!(largest(1000, |n| n <= 4000), 1000);
    }

    #[test]
    fn sizes_and_years_as_people_say_them() {
        assert_eq!(size::rounded(255), "255 B");
        assert_eq!(size::rounded((1 << 44) - 4096), "16 TiB");
        assert_eq!(size::rounded(i64::MAX.cast_unsigned()), "8 EiB");
        assert_eq!(size::rounded(1536), "1.5 KiB");
        assert_eq!(year(i64::from(i32::MAX)), 2038);
        assert_eq!(year(i64::from(u32::MAX)), 2106);
        assert_eq!(year(0), 1970);
    }

    #[test]
    fn what_a_file_system_refuses_is_no_and_what_fails_is_named() {
        assert_eq!(refusal(Errno::OPNOTSUPP), "no");
        assert!(refusal(Errno::NOSPC).contains("No space"));
    }

    #[test]
    fn every_feature_has_an_answer_that_holds_here() {
        let dir = tempfile::tempdir().unwrap();
        let found = features(dir.path());
        assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), bigiron_model::file_system::FEATURES);
        let of = |name: &str| found.iter().find(|(n, _)| *n == name).unwrap().1.as_str();
        // Features that every file system used for tests has.
        let reached = rustix::fs::statvfs(dir.path()).unwrap().f_namemax;
        assert_eq!(of("longest name"), format!("{reached} bytes"), "statvfs is asked by nobody else");
        assert!(of("links to a file").starts_with(|c: char| c.is_ascii_digit()), "{found:?}");
        assert!(["PiB", "TiB", "EiB"].iter().any(|unit| of("largest file").contains(unit)), "{found:?}");
    }
}
