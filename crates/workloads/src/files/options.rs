//! The options of `files`, as text and as read.

use super::nfs::{Nfs, Version};
use super::samba::Samba;
use crate::loadfile::Settings as Replay;
use crate::loadfile::settings::{CLIENTS_OPTION, LENGTH, LOADFILE, REQUESTS_OPTION, SEED, WARM_UP, WORK};
use bigiron_model::workload::Options;
use bigiron_smb::{Dialect, MOST_CHANNELS, Protection};
use bigiron_workload::{ByClock, OptionDef, OptionReader, choice, option};

pub const NAME: &str = "files";

const CLIENTS: OptionDef = option(
    "clients",
    "4",
    "Clients; `1,2,4` measures each number in turn, and all other metrics are those of the last",
);
/// Fewer than where no server is behind each request.
const REQUESTS: OptionDef = OptionDef { default: "1000", ..REQUESTS_OPTION };
const SERVER: OptionDef = choice(
    "server",
    &["nfs", "samba"],
    "The file server: the kernel's NFS server, or a private Samba from Debian's archive",
);
const VERSION: OptionDef = option("version", "auto", "Series of Samba, such as `4.22`; `auto`: Debian 12's, 4.17");
const PROTOCOL: OptionDef =
    choice("protocol", &["3.1.1", "3.0.2", "2.1"], "Version of SMB that clients and Samba speak");
const SIGNING: OptionDef = choice("signing", &["off", "on"], "Whether every SMB message is signed");
const ENCRYPTION: OptionDef =
    choice("encryption", &["off", "on"], "Whether every SMB message is encrypted; only with protocol 3.1.1");
const OPLOCKS: OptionDef = choice("oplocks", &["on", "off"], "Whether clients ask for oplocks and Samba grants them");
const AIO: OptionDef = choice("aio", &["on", "off"], "Whether Samba reads and writes in threads");
const CHANNELS: OptionDef = option(
    "channels",
    "1",
    "TCP connections of each client's SMB session (multichannel), 1 to 8; more than one need protocol 3.1.1 or 3.0.2",
);
const NFS_VERSION: OptionDef = choice("nfs-version", &["4.2", "3"], "Version of NFS that client and server speak");
const EXPORT: OptionDef = choice(
    "export",
    &["sync", "async"],
    "Whether the NFS server answers after (`sync`) or before (`async`) the data are on the disk",
);
const NFS_THREADS: OptionDef = option("nfs-threads", "8", "Threads of the NFS server, 1 to 1024");
const CONNECTIONS: OptionDef = option("connections", "1", "TCP connections of the NFS mount, 1 to 16");

pub const OPTIONS: &[OptionDef] = &[
    SERVER,
    CLIENTS,
    LOADFILE,
    REQUESTS,
    SEED,
    WORK,
    WARM_UP,
    LENGTH,
    NFS_VERSION,
    EXPORT,
    NFS_THREADS,
    CONNECTIONS,
    VERSION,
    PROTOCOL,
    SIGNING,
    ENCRYPTION,
    OPLOCKS,
    AIO,
    CHANNELS,
];

/// Options that only one of the servers has.
const OF_NFS: [OptionDef; 4] = [NFS_VERSION, EXPORT, NFS_THREADS, CONNECTIONS];
const OF_SAMBA: [OptionDef; 7] = [VERSION, PROTOCOL, SIGNING, ENCRYPTION, OPLOCKS, AIO, CHANNELS];
/// Debian 12's.
const SERIES: &str = "4.17";

/// Most points of a curve.
const POINTS: usize = 12;

/// The server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Nfs(Nfs),
    Samba(Samba),
}

/// The options as read.
#[derive(Clone, Debug)]
pub struct Settings {
    pub server: Server,
    /// The replays in the order of their clients; all other metrics than the curve's are of the last.
    pub points: Vec<Replay>,
}

impl Settings {
    /// Reads complete options.
    ///
    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(options: &Options) -> Result<ByClock<Self>, String> {
        let server = server(options)?;
        let points = counts(options)?
            .into_iter()
            .map(|clients| {
                let mut options = options.clone();
                options.insert(CLIENTS_OPTION.name.to_owned(), clients.to_owned());
                Replay::parse(&OptionReader { workload: NAME, definitions: OPTIONS, options: &options })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let of = |pick: fn(&ByClock<Replay>) -> &Replay| {
            let points = points.iter().map(|point| pick(point).clone()).collect();
            Self { server: server.clone(), points }
        };
        Ok(ByClock { wall: of(|point| &point.wall), other: of(|point| &point.other) })
    }

    /// The replay with the most clients.
    pub fn last(&self) -> &Replay {
        self.points.last().expect("there is a number of clients")
    }
}

/// The numbers of clients, each more than the one before.
fn counts(options: &Options) -> Result<Vec<&str>, String> {
    let text = options.get(CLIENTS.name).map_or(CLIENTS.default, String::as_str);
    let counts: Vec<&str> = text.split(',').map(str::trim).collect();
    let numbers: Vec<_> = counts.iter().filter_map(|n| n.parse::<u32>().ok()).collect();
    let grows = numbers.windows(2).all(|two| two[0] < two[1]);
    // A single word that is no number is refused where it is read.
    if counts.len() > POINTS || counts.len() > 1 && (!grows || numbers.len() < counts.len()) {
        return Err(format!(
            "`{NAME}.{}` cannot be `{text}`; it can be a number from 1 to 10000, or up to {POINTS} growing ones such as `1,2,4`",
            CLIENTS.name
        ));
    }
    Ok(counts)
}

fn server(options: &Options) -> Result<Server, String> {
    let read = OptionReader { workload: NAME, definitions: OPTIONS, options };
    let is_samba = read.text(SERVER.name) == "samba";
    let others = if is_samba { &OF_NFS[..] } else { &OF_SAMBA };
    others.iter().try_for_each(|option| read.has_no_effect(option.name, SERVER.name))?;
    if is_samba { samba(&read).map(Server::Samba) } else { nfs(&read).map(Server::Nfs) }
}

fn number(read: &OptionReader<'_>, def: &OptionDef, most: u32) -> Result<u32, String> {
    let number = read.text(def.name).parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| read.wrong(def.name, &format!("1 to {most}")))
}

fn nfs(read: &OptionReader<'_>) -> Result<Nfs, String> {
    Ok(Nfs {
        version: if read.text(NFS_VERSION.name) == "3" { Version::V3 } else { Version::V42 },
        is_async: read.text(EXPORT.name) == "async",
        threads: number(read, &NFS_THREADS, 1024)?,
        connections: number(read, &CONNECTIONS, 16)?,
    })
}

fn samba(read: &OptionReader<'_>) -> Result<Samba, String> {
    let is_on = |def: &OptionDef| read.text(def.name) == "on";
    let dialect = match read.text(PROTOCOL.name) {
        "2.1" => Dialect::V21,
        "3.0.2" => Dialect::V302,
        _ => Dialect::V311,
    };
    let protection = match (is_on(&SIGNING), is_on(&ENCRYPTION)) {
        (_, true) if dialect != Dialect::V311 => {
            return Err(format!(
                "`{NAME}.{}` `on` needs `{NAME}.{}` `3.1.1`, whose cipher is AES-128-GCM",
                ENCRYPTION.name, PROTOCOL.name
            ));
        }
        (true, true) => {
            return Err(format!(
                "`{NAME}.{0}` has no effect with `{NAME}.{1}` `on`: an encrypted message is not signed; omit `{NAME}.{0}`",
                SIGNING.name, ENCRYPTION.name
            ));
        }
        (_, true) => Protection::Encrypted,
        (true, _) => Protection::Signed,
        (false, false) => Protection::None,
    };
    let series = match read.text(VERSION.name) {
        "auto" => SERIES,
        series if series.starts_with(|c: char| c.is_ascii_digit()) => series,
        _ => return Err(read.wrong(VERSION.name, "a series such as `4.22`, or `auto`")),
    };
    let channels = number(read, &CHANNELS, MOST_CHANNELS as u32)? as usize;
    if channels > 1 && dialect == Dialect::V21 {
        return Err(format!(
            "`{NAME}.{0}` `{channels}` needs `{NAME}.{1}` `3.1.1` or `3.0.2`: SMB 2.1 has no multichannel; set `{NAME}.{0}` to 1",
            CHANNELS.name, PROTOCOL.name
        ));
    }
    Ok(Samba {
        series: series.to_owned(),
        dialect,
        protection,
        oplocks: is_on(&OPLOCKS),
        asynchronous: is_on(&AIO),
        channels,
    })
}
