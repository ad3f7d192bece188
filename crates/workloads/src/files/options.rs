//! The options of `files`, as text and as read.

use super::nfs::{Nfs, Version};
use crate::loadfile::Settings as Replay;
use crate::loadfile::settings::{CLIENTS_OPTION, LENGTH, LOADFILE, REQUESTS_OPTION, SEED, WARM_UP, WORK};
use bigiron_model::workload::Options;
use bigiron_workload::{ByClock, OptionDef, OptionReader, choice, option};

pub const NAME: &str = "files";

const CLIENTS: OptionDef = option(
    "clients",
    "4",
    "Clients, each with a session of its own; `1,2,4` measures a curve, whose last point the other metrics are of",
);
const SERVER: OptionDef = choice("server", &["nfs"], "The file server: the kernel's NFS server");
const NFS_VERSION: OptionDef = choice("nfs-version", &["4.2", "3"], "The version of NFS");
const EXPORT: OptionDef =
    choice("export", &["sync", "async"], "Whether the NFS server answers what must be on the disk before it is there");
const NFS_THREADS: OptionDef = option("nfs-threads", "8", "Threads of the NFS server, 1 to 1024");
const CONNECTIONS: OptionDef = option("connections", "1", "TCP connections of the NFS mount, 1 to 16");

pub const OPTIONS: &[OptionDef] = &[
    SERVER,
    CLIENTS,
    LOADFILE,
    REQUESTS_OPTION,
    SEED,
    WORK,
    WARM_UP,
    LENGTH,
    NFS_VERSION,
    EXPORT,
    NFS_THREADS,
    CONNECTIONS,
];

/// Most points of a curve.
const POINTS: usize = 12;

/// The server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Nfs(Nfs),
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
                Replay::parse(NAME, &options)
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
    let number = |def: &OptionDef, most: u32| {
        let number = read.text(def.name).parse().ok().filter(|n| (1..=most).contains(n));
        number.ok_or_else(|| read.wrong(def.name, &format!("1 to {most}")))
    };
    Ok(Server::Nfs(Nfs {
        version: if read.text(NFS_VERSION.name) == "3" { Version::V3 } else { Version::V42 },
        is_async: read.text(EXPORT.name) == "async",
        threads: number(&NFS_THREADS, 1024)?,
        connections: number(&CONNECTIONS, 16)?,
    }))
}
