//! A private Samba for a trial: its settings, and the running server.
//!
//! Invariant: it listens on 127.0.0.1, and its only account has a password that each trial makes for itself.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::loadfile::ROOT;
use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::{TREE, programs_here};
use bigiron_service::instance::{DATA, Instance, make_folder, patiently};
use bigiron_service::listen::{free_port, new_password};
use bigiron_service::programs::Programs;
use bigiron_service::samba::{self, RECIPE, Smbd};
use bigiron_smb::{Dialect, Protection, Terms, nt_hash};
use bigiron_workload::Context;

/// The port in a guest, which nobody else uses: Samba's own could be taken by root only.
const GUEST_PORT: u16 = 4450;
/// The server's folder in a trial's own.
const FOLDER: &str = "server";

/// How Samba runs, and how clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samba {
    /// The series of its versions.
    pub series: String,
    pub dialect: Dialect,
    pub protection: Protection,
    pub oplocks: bool,
    pub asynchronous: bool,
    /// Connections of each client's session.
    pub channels: usize,
}

impl Samba {
    /// What clients ask for.
    pub fn terms(&self) -> Terms {
        Terms { dialect: self.dialect, protection: self.protection, channels: self.channels }
    }
}

/// `3.1.1`, and the name in Samba's configuration.
pub fn names(dialect: Dialect) -> (&'static str, &'static str) {
    match dialect {
        Dialect::V21 => ("2.1", "SMB2_10"),
        Dialect::V302 => ("3.0.2", "SMB3_02"),
        Dialect::V311 => ("3.1.1", "SMB3_11"),
    }
}

/// A running server. Dropping it kills it.
pub struct SambaServer {
    instance: Instance<Smbd>,
    pub samba: Samba,
    pub address: SocketAddrV4,
    pub password: String,
    version: String,
}

impl SambaServer {
    /// Starts a server; its share is empty.
    ///
    /// # Errors
    /// It is not available, or does not start; includes its log.
    pub fn start(samba: &Samba, cx: &Context<'_>) -> Result<Self> {
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create `{}`", folder.display()))?;
        let (programs, port) = match cx.images.get(TREE) {
            Some(tree) => (Programs::in_tree(&RECIPE, tree, &samba.series), GUEST_PORT),
            None => (programs_here(cx, &RECIPE, &samba.series)?, free_port(&folder)?),
        };
        samba::init(&programs, &folder)?;
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        make_folder(&folder.join(DATA).join(ROOT), user)?;
        let password = new_password(&folder, user)?;
        let smbd = Smbd {
            port,
            protocol: names(samba.dialect).1,
            signs: samba.protection == Protection::Signed,
            encrypts: samba.protection == Protection::Encrypted,
            oplocks: samba.oplocks,
            asynchronous: samba.asynchronous,
            multichannel: samba.channels > 1,
            password_hash: nt_hash(&password),
        };
        let instance = Instance::start(smbd, &programs, &folder)?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Ok(Self { instance, samba: samba.clone(), address, password, version: programs.version()? })
    }

    /// The share's directory.
    pub fn share(&self) -> PathBuf {
        self.instance.folder().join(DATA)
    }

    /// CPU time of all its processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.instance.cpu_ns()
    }

    /// Why it cannot go on, if its sessions broke: how it ended, or what its log says.
    pub fn complaint(&mut self) -> Option<ServerError> {
        patiently(|| self.instance.complaint(RECIPE.title))
    }

    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.instance.pid()
    }

    /// For the record.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let Samba { dialect, protection, oplocks, asynchronous, channels, .. } = self.samba;
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        let protection = match (protection, dialect) {
            (Protection::None, _) => "none",
            (Protection::Signed, Dialect::V21) => "signed with HMAC-SHA256",
            (Protection::Signed, Dialect::V302) => "signed with AES-CMAC",
            (Protection::Signed, Dialect::V311) => "signed with AES-GMAC",
            (Protection::Encrypted, _) => "encrypted with AES-128-GCM",
        };
        vec![
            ("server", self.version.clone()),
            ("protocol", format!("SMB {}", names(dialect).0)),
            ("protection", protection.to_owned()),
            ("oplocks", switch(oplocks)),
            ("server-aio", switch(asynchronous)),
            // Of each session: a client that cannot bind all of them fails the trial.
            ("channels", channels.to_string()),
        ]
    }

    /// Stops it in good order.
    ///
    /// # Errors
    /// It had ended before, or it does not stop as it should.
    pub fn stop(self) -> Result<(), ServerError> {
        self.instance.stop()
    }
}
