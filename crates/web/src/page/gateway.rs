//! The program of a private server's pages with its database or its log, in the server's folder; with FastCGI, its running application.
//!
//! Invariant: the application ends with the value, and runs as the server's user among the server's files.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;

use bigiron_service::CpuMeter;
use bigiron_service::httpd::{Gateway, Kind, PROGRAMS, RUN, SOCKET};
use bigiron_service::instance;
use bigiron_service::programs::Programs;
use bigiron_service::server_folder::short_path;
use bigiron_workload::{Context, WrongData};

use super::database::{PAGES, PageDatabase, page};
use super::program_cpu::ProgramCpu;
use super::{DATABASE, WORKER, files};
use crate::document::Documents;
use crate::driver::Tally;
use crate::web99::post_log;

const PROGRAM: &str = "page";
/// Threads of the application for each CPU.
const THREADS: u32 = 2;
/// Bytes of what it says.
const SAID: usize = 4096;

/// What is behind the pages.
enum Behind {
    Database(PageDatabase),
    /// The log of POSTs.
    Log(PathBuf),
}

/// The program of a server's pages.
pub struct PageServer {
    behind: Behind,
    application: Option<Child>,
    cpu: CpuMeter,
    /// `None` if the server waits for its CGI programs, or has none.
    program_cpu: Option<ProgramCpu>,
}

/// The pages that are requested. Their queries are the arguments of the CGI program.
pub fn documents() -> Documents {
    let path = |number| format!("/cgi/{PROGRAM}?worker+{WORKER}+{number}");
    Documents::of((1..=PAGES).map(|number| (path(number), page(number).into_bytes())))
}

impl PageServer {
    /// Puts the program and the database of a server of this kind in place, and starts the application that a server without CGI needs.
    ///
    /// # Errors
    /// There is no room, or the application does not start.
    pub fn start(
        cx: &Context<'_>,
        programs: &Programs,
        folder: &Path,
        (kind, gateway): (Kind, Gateway),
        user: u32,
    ) -> Result<Self> {
        let program = folder.join(PROGRAMS).join(PROGRAM);
        instance::make_folder(&folder.join(PROGRAMS), user)?;
        let copied = fs::copy(&cx.executable, &program)
            .and_then(|_| fs::set_permissions(&program, fs::Permissions::from_mode(0o700)))
            .and_then(|()| instance::give(&program, user));
        copied.with_context(|| format!("Cannot make {}", program.display()))?;
        let give =
            |file: &Path| instance::give(file, user).with_context(|| format!("Cannot give away {}", file.display()));
        let inside = programs.inside(folder);
        let (behind, serves, place) = if gateway == Gateway::Both {
            let log = folder.join(RUN).join(files::LOG);
            File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?;
            give(&log)?;
            (Behind::Log(log), "serve-files", inside.clone())
        } else {
            let database = PageDatabase::create(&folder.join(DATABASE))?;
            ["", "-wal", "-shm"].iter().try_for_each(|end| give(&folder.join(format!("{DATABASE}{end}"))))?;
            (Behind::Database(database), "serve", inside.join(DATABASE))
        };
        let counts = kind.drops_cpu_time() && gateway != Gateway::FastCgi;
        let program_cpu = counts.then(|| ProgramCpu::create(folder, user)).transpose()?;
        if gateway == Gateway::Cgi {
            return Ok(Self { behind, application: None, cpu: CpuMeter::default(), program_cpu });
        }
        let (_link, short) = short_path(folder, SOCKET)?;
        let listener = UnixListener::bind(short.join(SOCKET)).context("Cannot listen for the server's requests")?;
        instance::give(&folder.join(SOCKET), user).context("Cannot give the socket away")?;
        let name = inside.join(PROGRAMS).join(PROGRAM);
        let mut command = programs.command(&name.to_string_lossy(), folder)?;
        let threads = (THREADS * cx.cpus).to_string();
        command.args(["worker", WORKER, serves]).arg(place).arg(threads);
        command.stdin(OwnedFd::from(listener)).stderr(Stdio::piped());
        let application = command.spawn().context("Cannot start the FastCGI application")?;
        Ok(Self { behind, application: Some(application), cpu: CpuMeter::default(), program_cpu })
    }

    /// CPU time of the application so far, of the programs that it has started, and of CGI programs that the server does not wait for, in
    /// nanoseconds; the server's processes include that of other CGI programs.
    pub fn cpu_ns(&self) -> u64 {
        let of_application = self.application.as_ref().map_or(0, |child| self.cpu.total_ns(Pid::from_child(child)));
        of_application + self.program_cpu.as_ref().map_or(0, ProgramCpu::total_ns)
    }

    /// What the application complained about, or how it ended, if it did.
    pub fn complaint(&mut self) -> Option<String> {
        let child = self.application.as_mut()?;
        // What is in the pipe, and no more: it has an end only with the application.
        let mut said = vec![0; SAID];
        let length = child.stderr.as_mut().filter(has_input).and_then(|pipe| pipe.read(&mut said).ok());
        if let Some(first) = String::from_utf8_lossy(&said[..length.unwrap_or(0)]).lines().next() {
            return Some(format!("The FastCGI application reported: {first}"));
        }
        let status = child.try_wait().ok()??;
        Some(format!("The FastCGI application ended in the run ({status})"))
    }

    /// Checks what the pages have left behind.
    ///
    /// # Errors
    /// A [`WrongData`] if a visit or a form was not counted, or twice.
    pub fn check(&self, tally: &Tally) -> Result<()> {
        match &self.behind {
            Behind::Database(database) => {
                let (visits, answered) = (database.visits()?, tally.all);
                ensure!(
                    visits == answered,
                    WrongData(format!(
                        "The server sent {answered} pages, but its database has counted {visits} visits"
                    ))
                );
                Ok(())
            }
            Behind::Log(log) => post_log::check(log, tally.pages.posts).map_err(|e| WrongData(format!("{e:#}")).into()),
        }
    }
}

fn has_input(pipe: &impl AsFd) -> bool {
    let mut poll = [PollFd::new(pipe, PollFlags::IN)];
    rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl Drop for PageServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.application {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
