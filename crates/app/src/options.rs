//! The options of `app` as users see them.

use bigiron_workload::{OptionDef, option};

pub const NAME: &str = "app";

pub const OPTIONS: &[OptionDef] = &[
    option("database", "postgres", "The server behind Tomcat: `postgres` or `mariadb`"),
    option(
        "tomcat-on",
        "here",
        "The machine that runs Tomcat: `here`, the machine of the trial, or `ssh:NAME`, a machine to which that one can log in without a password",
    ),
    option("database-on", "here", "The machine that runs the database: `here` or `ssh:NAME`, as for `tomcat-on`"),
    option(
        "rate",
        "auto",
        "Injection rate: dealers' operations per second, with three times as many of the factory and the suppliers; `search`: the highest that conforms; `off`: each client sends its next request after a response; `auto`: `search` on the wall clock, else `off`",
    ),
    option("clients", "auto", "The driver's connections to Tomcat, 1 to 10000; `auto`: twice the threads of Tomcat"),
    option("threads", "auto", "Tomcat's threads for requests, 1 to 1000; `auto`: 50 on the wall clock, else 10"),
    option("pool", "auto", "Connections of the pool, all open from the start, 1 to 1000; `auto`: twice the threads"),
    option("session", "4K", "Bytes of each dealer's session, 0 to 16M; `0`: no sessions"),
    option("dealers", "1000", "Dealers, 10 to 1000000; each has three orders at the start"),
    option("heap", "auto", "Size of the JVM's heap; `auto`: 96M, and twice the sessions"),
    option(
        "compilers",
        "auto",
        "Java's compilers: `both`, or `c1`, the quick one; `auto`: `both` on the wall clock, else `c1`, with which a program is soon as fast as it will be",
    ),
    option(
        "warmup",
        "auto",
        "Unmeasured part before a window: a number of requests, a time, or `auto`: 10 s on the wall clock, else 600 requests",
    ),
    option(
        "length",
        "auto",
        "Measured part: a number of requests from 400, a time, or `auto`: 20 s on the wall clock, else 800 requests",
    ),
];

/// Why there is no option for virtual threads.
pub const VIRTUAL: &str = "virtual threads need Java 21 or newer, and Debian 12 has Java 17: Tomcat uses one kernel thread for each of `app.threads`";

/// Why there is no option for the transport between the tiers.
pub const TRANSPORT: &str = "all tiers are reached by TCP: HTTP has no other transport, Java's database drivers need additional libraries for a local socket, and Tomcat's root directory does not contain the database's files";
