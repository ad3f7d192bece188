//! The program of a private server's pages and its database, in the server's folder; with FastCGI, its running application.
//!
//! Invariant: the application ends with the value, and runs as the server's user among the server's files.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;

use bigiron_service::httpd::{Gateway, PROGRAMS, SOCKET};
use bigiron_service::instance;
use bigiron_service::programs::Programs;
use bigiron_service::server_folder::short_path;
use bigiron_sys::cpu_clock::cpu_time;
use bigiron_workload::{Context, WrongData};

use super::WORKER;
use super::database::{PAGES, PageDatabase, page};
use crate::document::Documents;

const PROGRAM: &str = "page";
const DATABASE: &str = "run/page.db";
/// Threads of the application for each CPU.
const THREADS: u32 = 2;

/// What is behind the pages.
pub struct PageServer {
    database: PageDatabase,
    application: Option<Child>,
}

/// The pages that are requested. Their queries are the arguments of the CGI program.
pub fn documents() -> Documents {
    let path = |number| format!("/cgi/{PROGRAM}?worker+{WORKER}+{number}");
    Documents::of((1..=PAGES).map(|number| (path(number), page(number).into_bytes())))
}

impl PageServer {
    /// Puts the program and the database in place, and starts the application that a server without CGI needs.
    ///
    /// # Errors
    /// There is no room, or the application does not start.
    pub fn start(cx: &Context<'_>, programs: &Programs, folder: &Path, gateway: Gateway, user: u32) -> Result<Self> {
        let program = folder.join(PROGRAMS).join(PROGRAM);
        instance::make_folder(&folder.join(PROGRAMS), user)?;
        let copied = fs::copy(&cx.executable, &program)
            .and_then(|_| fs::set_permissions(&program, fs::Permissions::from_mode(0o700)))
            .and_then(|()| instance::give(&program, user));
        copied.with_context(|| format!("Cannot make {}", program.display()))?;
        let path = folder.join(DATABASE);
        let database = PageDatabase::create(&path)?;
        for end in ["", "-wal", "-shm"] {
            let file = folder.join(format!("{DATABASE}{end}"));
            instance::give(&file, user).with_context(|| format!("Cannot give away {}", file.display()))?;
        }
        if gateway == Gateway::Cgi {
            return Ok(Self { database, application: None });
        }
        let (_link, short) = short_path(folder, SOCKET)?;
        let listener = UnixListener::bind(short.join(SOCKET)).context("Cannot listen for the server's requests")?;
        instance::give(&folder.join(SOCKET), user).context("Cannot give the socket away")?;
        let inside = programs.inside(folder);
        let name = inside.join(PROGRAMS).join(PROGRAM);
        let mut command = programs.command(&name.to_string_lossy(), folder)?;
        let threads = (THREADS * cx.cpus).to_string();
        command.args(["worker", WORKER, "serve"]).arg(inside.join(DATABASE)).arg(threads);
        command.stdin(OwnedFd::from(listener));
        let application = command.spawn().context("Cannot start the FastCGI application")?;
        Ok(Self { database, application: Some(application) })
    }

    /// CPU time of the application so far, in nanoseconds; the server's processes include that of CGI programs.
    pub fn cpu_ns(&self) -> u64 {
        let time = self.application.as_ref().and_then(|child| cpu_time(Pid::from_child(child)).ok());
        time.map_or(0, |time| time.as_nanos() as u64)
    }

    /// How the application ended, if it did.
    pub fn complaint(&mut self) -> Option<String> {
        let status = self.application.as_mut()?.try_wait().ok()??;
        Some(format!("The FastCGI application ended in the run ({status})"))
    }

    /// Checks that the database has counted `answered` visits.
    ///
    /// # Errors
    /// A [`WrongData`] if one was not, or twice.
    pub fn check(&self, answered: u64) -> Result<()> {
        let visits = self.database.visits()?;
        ensure!(
            visits == answered,
            WrongData(format!("The server sent {answered} pages, but its database has counted {visits} visits"))
        );
        Ok(())
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.application {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
