//! The kernel's NFS server and client in a guest, without the programs of nfs-utils: bigiron writes what they would write below /proc.
//!
//! Invariant: the server listens on 127.0.0.1 only. Dropping an [`NfsMount`] unmounts the export and ends the server's threads.

mod rpc;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The file system through which the server is controlled.
const CONTROL: &str = "/proc/fs/nfsd";
/// The server's usual port.
const PORT: u16 = 2049;
/// Where the kernel itself keeps records of NFSv4 clients, unless a daemon does.
const RECORDS: &str = "/var/lib/nfs/v4recovery";
/// The shortest that the kernel accepts.
const GRACE: Duration = Duration::from_secs(10);
/// The name under which the server knows its only client.
const DOMAIN: &str = "guest";
/// Until when the server believes what it was told, in seconds since 1970: the largest number that it reads.
const FOREVER: u32 = i32::MAX as u32;
/// The number of the exported file system: 0 makes it the root of what NFSv4 clients see.
const FILESYSTEM: u32 = 0;
/// Longest file handle of version 3.
const HANDLE: usize = 64;
/// Flags of an export, as in the kernel's <linux/nfsd/export.h>. Those of `exportfs` where nothing is said, but for `no_root_squash`: insecure_locks and
/// subtree checks are off, and with `sync` a write waits for a neighbour (wdelay).
const ASYNC: u32 = 0x10;
const GATHERED_WRITES: u32 = 0x20;
const NO_SUBTREE_CHECK: u32 = 0x400;
const HAS_NUMBER: u32 = 0x2000;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V3,
    V42,
}

/// How server and client run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nfs {
    pub version: Version,
    /// Whether the server answers a write before the data are on the disk, although the client asked it to wait.
    pub is_async: bool,
    /// The server's threads.
    pub threads: u32,
    /// TCP connections of the mount.
    pub connections: u32,
}

impl Version {
    /// `4.2`
    pub fn name(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V42 => "4.2",
        }
    }
}

impl Nfs {
    /// Kernel modules of server and client.
    pub fn modules(self) -> Vec<&'static str> {
        vec!["nfsd", if self.version == Version::V3 { "nfsv3" } else { "nfsv4" }]
    }

    fn options(self) -> String {
        let version = match self.version {
            Version::V3 => {
                let port = rpc::PORT;
                format!(
                    "vers=3,proto=tcp,nolock,mountvers=3,mountproto=tcp,mountaddr={},mountport={port}",
                    Ipv4Addr::LOCALHOST
                )
            }
            Version::V42 => format!("vers=4.2,clientaddr={}", Ipv4Addr::LOCALHOST),
        };
        let connections = if self.connections > 1 { format!(",nconnect={}", self.connections) } else { String::new() };
        format!("{version},addr={},port={PORT},sec=sys{connections}", Ipv4Addr::LOCALHOST)
    }
}

/// A mounted export and its server.
pub struct NfsMount {
    nfs: Nfs,
    at: PathBuf,
    is_mounted: bool,
    _server: Threads,
}

impl NfsMount {
    /// Exports `export` and mounts it at `at`; both are empty directories.
    ///
    /// # Errors
    /// The kernel refuses a step, or a port is taken.
    pub fn start(nfs: Nfs, export: &Path, at: &Path) -> Result<Self> {
        let path = escaped(export)?;
        let handle = || root_handle(&path);
        rpc::answering(&handle, || {
            let server = Threads::start(nfs)?;
            publish(&path, nfs.is_async)?;
            if nfs.version == Version::V42 {
                end_grace();
            }
            let source = match nfs.version {
                Version::V3 => format!("{}:{}", Ipv4Addr::LOCALHOST, export.display()),
                Version::V42 => format!("{}:/", Ipv4Addr::LOCALHOST),
            };
            let options = std::ffi::CString::new(nfs.options())?;
            mount(&*source, at, "nfs", MountFlags::empty(), Some(&*options))
                .with_context(|| format!("The kernel's NFS client cannot mount {source} ({})", nfs.options()))?;
            Ok(Self { nfs, at: at.to_owned(), is_mounted: true, _server: server })
        })
    }

    /// For the record.
    ///
    /// # Errors
    /// The export is not mounted as it should be.
    pub fn facts(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("server", "the kernel's NFS server".to_owned()),
            ("nfs-version", self.nfs.version.name().to_owned()),
            ("export", if self.nfs.is_async { "async" } else { "sync" }.to_owned()),
            ("server-threads", self.nfs.threads.to_string()),
            ("mount-options", self.options()?),
        ])
    }

    /// Where clients find the export.
    pub fn mounted_at(&self) -> &Path {
        &self.at
    }

    /// The mount's options as the kernel reports them.
    fn options(&self) -> Result<String> {
        let mounts = fs::read_to_string("/proc/mounts").context("Cannot read /proc/mounts")?;
        let at = self.at.display().to_string();
        let line =
            mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words.get(1) == Some(&&*at));
        let options = line.context("The export is not mounted")?[3].to_owned();
        let version = format!("vers={}", self.nfs.version.name());
        ensure!(options.split(',').any(|o| o == version), "The export is mounted with {options}, without {version}");
        Ok(options)
    }

    /// Unmounts, which writes everything back, and ends the server.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(mut self) -> Result<()> {
        self.is_mounted = false;
        unmount(&self.at, UnmountFlags::empty()).context("Cannot unmount the export")
    }
}

impl Drop for NfsMount {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}

/// The server's threads; they end when this is dropped.
struct Threads;

impl Threads {
    fn start(nfs: Nfs) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).with_context(|| {
            format!(
                "The NFS server cannot listen on 127.0.0.1:{PORT}; end what listens there, such as another NFS server"
            )
        })?;
        match mount("nfsd", CONTROL, "nfsd", MountFlags::empty(), None) {
            Err(rustix::io::Errno::BUSY) | Ok(()) => {}
            Err(e) => bail!("Cannot mount {CONTROL}, so the kernel has no NFS server: {e}"),
        }
        if nfs.version == Version::V42 {
            fs::create_dir_all(RECORDS).with_context(|| format!("Cannot create {RECORDS}"))?;
            control("nfsv4gracetime", &format!("{}\n", GRACE.as_secs()))?;
        }
        control("versions", if nfs.version == Version::V3 { "+3 -4\n" } else { "-3 +4 +4.2\n" })?;
        control("portlist", &format!("{}\n", listener.as_raw_fd()))?;
        // From here on it has to be ended.
        let threads = Self;
        control("threads", &format!("{}\n", nfs.threads))?;
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let _ = control("threads", "0\n");
    }
}

/// Ends the time in which the server accepts only claims of state from before its start; nobody has any. A kernel that keeps no records of clients in
/// [`RECORDS`] cannot end it early, so that it has to be waited for.
fn end_grace() {
    if control("v4_end_grace", "Y\n").is_err() {
        std::thread::sleep(GRACE + Duration::from_secs(1));
    }
}

/// Tells the server its client and its export, as `exportfs` and `rpc.mountd` do.
fn publish(path: &str, is_async: bool) -> Result<()> {
    let flags = NO_SUBTREE_CHECK | HAS_NUMBER | if is_async { ASYNC } else { GATHERED_WRITES };
    for (cache, line) in [
        ("auth.unix.ip", format!("nfsd {} {FOREVER} {DOMAIN}", Ipv4Addr::LOCALHOST)),
        ("nfsd.export", format!("{DOMAIN} {path} {FOREVER} {flags} 65534 65534 {FILESYSTEM}")),
        // The kind of handle that has a number of four bytes.
        ("nfsd.fh", format!("{DOMAIN} 1 \\x{:08x} {FOREVER} {path}", FILESYSTEM.swap_bytes())),
    ] {
        let file = format!("/proc/net/rpc/{cache}/channel");
        write_whole(Path::new(&file), &format!("{line}\n"))?;
    }
    Ok(())
}

/// The handle of the exported directory, as for a mount daemon.
fn root_handle(path: &str) -> Result<Vec<u8>> {
    let file = Path::new(CONTROL).join("filehandle");
    let refused = || format!("The NFS server gives no handle of {path}");
    let mut asked = OpenOptions::new().read(true).write(true).open(file).with_context(refused)?;
    asked.write_all(format!("{DOMAIN} {path} {HANDLE}\n").as_bytes()).with_context(refused)?;
    let mut answer = String::new();
    asked.read_to_string(&mut answer).with_context(refused)?;
    let digits = answer.trim().strip_prefix("\\x").with_context(refused)?;
    let byte = |n: usize| u8::from_str_radix(digits.get(n..n + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>().with_context(refused)
}

fn control(file: &str, text: &str) -> Result<()> {
    write_whole(&Path::new(CONTROL).join(file), text)
}

/// One write, as these files want it.
fn write_whole(file: &Path, text: &str) -> Result<()> {
    let refused = || format!("The kernel refuses `{}` in {}", text.trim(), file.display());
    let written = OpenOptions::new().write(true).open(file).and_then(|mut file: File| file.write(text.as_bytes()));
    let written = written.with_context(refused)?;
    ensure!(written == text.len(), refused());
    Ok(())
}

/// A path as a word of these files: whatever could be mistaken is in octal.
fn escaped(path: &Path) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("Cannot export {}", path.display()))?;
    let byte = |b: &u8| match b {
        b'\\' | b' ' | b'\t' | b'\n' => format!("\\{b:03o}"),
        0x21..0x7f => char::from(*b).to_string(),
        _ => format!("\\{b:03o}"),
    };
    Ok(path.as_os_str().as_bytes().iter().map(byte).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_sys::netns::Namespace;
    use bigiron_workload::testing;

    const USUAL: Nfs = Nfs { version: Version::V42, is_async: false, threads: 8, connections: 1 };

    #[test]
    fn mounts_name_the_server_and_its_ports() {
        assert_eq!(USUAL.options(), "vers=4.2,clientaddr=127.0.0.1,addr=127.0.0.1,port=2049,sec=sys");
        assert_eq!(
            Nfs { version: Version::V3, connections: 4, ..USUAL }.options(),
            "vers=3,proto=tcp,nolock,mountvers=3,mountproto=tcp,mountaddr=127.0.0.1,mountport=111,addr=127.0.0.1,port=2049,\
             sec=sys,nconnect=4"
        );
    }

    #[test]
    fn paths_are_one_word_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b\\c");
        fs::create_dir(&path).unwrap();
        assert!(escaped(&path).unwrap().ends_with("/a\\040b\\134c"));
        assert!(escaped(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_port_that_is_taken_is_named_and_nothing_is_left_that_listens() {
        if !rustix::process::geteuid().is_root() {
            return testing::skipped("a taken port", "only root can make a network of its own");
        }
        let dir = tempfile::tempdir().unwrap();
        // The thread alone is in the network.
        let said = std::thread::spawn(move || {
            Namespace::new().unwrap().enter().unwrap();
            bigiron_sys::net::interface_up("lo").unwrap();
            [rpc::PORT, PORT].map(|port| {
                let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
                let refused = NfsMount::start(USUAL, dir.path(), dir.path()).err().unwrap();
                drop(taken);
                let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
                // A process that another test has forked meanwhile holds what listens until it ends.
                let are_free = (0..15_000).any(|tries: u64| {
                    std::thread::sleep(Duration::from_millis(tries.min(20)));
                    is_free(rpc::PORT) && is_free(PORT)
                });
                (format!("{refused:#}"), are_free)
            })
        });
        let [(portmapper, first), (server, second)] = said.join().unwrap();
        assert!(
            portmapper.contains("127.0.0.1:111, where the kernel expects the portmapper; end what listens there")
                && portmapper.contains("in use"),
            "{portmapper}"
        );
        assert!(server.contains("127.0.0.1:2049; end what listens there") && server.contains("in use"), "{server}");
        assert!(first && second, "something is left that listens");
    }
}
