//! A child process with its own root and namespaces, as an unprivileged user, whether root or an ordinary user starts it.
//!
//! Invariant: nobody else sees the child's mounts, which disappear with it; the program never runs as root, and the kernel kills it when the thread
//! that started it ends.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Nodes of `/dev` that the child sees, if the machine has them.
const NODES: [&CStr; 5] = [c"null", c"zero", c"full", c"random", c"urandom"];

/// The environment of a child.
#[derive(Clone, Debug)]
pub struct Sandbox<'a> {
    /// The folder that becomes `/`, with the folders `dev`, `proc` and `tmp`; `None` keeps the machine's root.
    pub root: Option<&'a Path>,
    /// A folder, and its path in `root`, without a leading `/`.
    pub folder: (&'a Path, &'a str),
    /// The user and group of the program. An ordinary user is mapped to them; root switches to them.
    pub user: u32,
    /// Whether the child sees the machine's `/sys`.
    pub sees_sys: bool,
    /// Whether to map only the user, without mounts or another root: this is how an ordinary user makes a file system whose files belong to others.
    pub mapped_only: bool,
}

/// Everything needed between fork and exec, allocated in advance.
struct Prepared {
    parent: libc::pid_t,
    privileged: bool,
    user: libc::uid_t,
    root: Option<CString>,
    dev: CString,
    nodes: Vec<(CString, CString)>,
    shm: CString,
    proc: CString,
    sys: Option<CString>,
    tmp: CString,
    folder: (CString, CString),
    uid_map: CString,
    gid_map: CString,
    mapped_only: bool,
}

/// Puts the child of `command` into `sandbox`. It gets a process group of its own and dies with the thread that starts it, like those of
/// [`super::child::die_with_parent`]. A failure inside makes `spawn` fail.
///
/// # Errors
/// A path with a zero byte.
pub fn enclose<'c>(command: &'c mut Command, sandbox: &Sandbox<'_>) -> io::Result<&'c mut Command> {
    let text = |path: &Path| Ok::<_, io::Error>(CString::new(path.as_os_str().as_bytes())?);
    let root = sandbox.root.unwrap_or(Path::new("/"));
    let dev = root.join("dev");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let node = |name: &CStr| {
        let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        Ok::<_, io::Error>((text(&Path::new("/dev").join(name))?, text(&dev.join(name))?))
    };
    let prepared = Prepared {
        parent: std::process::id() as libc::pid_t,
        privileged: uid == 0,
        user: sandbox.user,
        root: sandbox.root.map(text).transpose()?,
        nodes: NODES.into_iter().map(node).collect::<io::Result<_>>()?,
        shm: text(&dev.join("shm"))?,
        dev: text(&dev)?,
        proc: text(&root.join("proc"))?,
        sys: sandbox.sees_sys.then(|| text(&root.join("sys"))).transpose()?,
        tmp: text(&root.join("tmp"))?,
        folder: (text(sandbox.folder.0)?, text(&root.join(sandbox.folder.1))?),
        uid_map: CString::new(format!("{} {uid} 1\n", sandbox.user))?,
        gid_map: CString::new(format!("{} {gid} 1\n", sandbox.user))?,
        mapped_only: sandbox.mapped_only,
    };
    // SAFETY: between fork and exec `enter` makes async-signal-safe system calls only and allocates nothing.
    unsafe { command.process_group(0).pre_exec(move || enter(&prepared)) };
    Ok(command)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn enter(p: &Prepared) -> io::Result<()> {
    if !p.privileged {
        map_user(p)?;
    }
    if !p.mapped_only {
        if p.root.is_some() {
            mount_all(p)?;
        }
        if p.privileged {
            drop_privileges(p)?;
        }
    }
    // Last, because a change of user clears it.
    // SAFETY: plain system calls without pointers.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // The parent may have died before; then the signal would never arrive.
        if libc::getppid() != p.parent {
            libc::_exit(127);
        }
        libc::umask(0o077);
    }
    Ok(())
}

/// Makes an ordinary user the sandbox's user in a new user namespace, in which it may mount.
fn map_user(p: &Prepared) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
    // A kernel without this file has no setgroups in namespaces and does not need it.
    let _ = write(c"/proc/self/setgroups", c"deny");
    write(c"/proc/self/uid_map", &p.uid_map)?;
    write(c"/proc/self/gid_map", &p.gid_map)
}

fn write(path: &CStr, text: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with a zero byte and outlive the calls; the descriptor is closed where it was opened.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(fd)?;
        let length = text.to_bytes().len();
        let written = libc::write(fd, text.as_ptr().cast(), length);
        let result = if written == length as isize { Ok(()) } else { Err(io::Error::last_os_error()) };
        libc::close(fd);
        result
    }
}

/// A mount without data; `kind` names a file system, or is empty for a bind.
fn mount(from: &CStr, to: &CStr, kind: &CStr, flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    // SAFETY: all strings end with a zero byte and outlive the call.
    check(unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) })
}

fn mount_all(p: &Prepared) -> io::Result<()> {
    const BIND: libc::c_ulong = libc::MS_BIND | libc::MS_REC;
    const PLAIN: libc::c_ulong = libc::MS_NOSUID;
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // System V shared memory disappears with the last process. A kernel without IPC namespaces keeps some bytes after a SIGKILL.
    // SAFETY: takes no pointer.
    let _ = unsafe { libc::unshare(libc::CLONE_NEWIPC) };
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")?;
    mount(c"tmpfs", &p.dev, c"tmpfs", PLAIN, c"mode=755")?;
    for (from, to) in &p.nodes {
        // SAFETY: the strings end with a zero byte; the descriptor is closed at once.
        unsafe {
            if libc::access(from.as_ptr(), libc::F_OK) != 0 {
                continue;
            }
            let fd = libc::open(to.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o666);
            check(fd)?;
            libc::close(fd);
        }
        mount(from, to, c"", libc::MS_BIND, c"")?;
    }
    // The server's POSIX shared memory is here and ends with it.
    // SAFETY: the string ends with a zero byte.
    unsafe {
        check(libc::mkdir(p.shm.as_ptr(), 0o1777))?;
        check(libc::chmod(p.shm.as_ptr(), 0o1777))?;
    }
    mount(c"tmpfs", &p.tmp, c"tmpfs", PLAIN, c"mode=1777")?;
    mount(c"/proc", &p.proc, c"", BIND, c"")?;
    if let Some(sys) = &p.sys {
        mount(c"/sys", sys, c"", BIND, c"")?;
    }
    mount(&p.folder.0, &p.folder.1, c"", BIND, c"")?;
    if let Some(root) = &p.root {
        // SAFETY: the strings end with a zero byte.
        unsafe {
            check(libc::chroot(root.as_ptr()))?;
            check(libc::chdir(c"/".as_ptr()))?;
        }
    }
    Ok(())
}

fn drop_privileges(p: &Prepared) -> io::Result<()> {
    // SAFETY: no group is given, so the pointer is not read; the others take none.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setgid(p.user))?;
        check(libc::setuid(p.user))
    }
}
