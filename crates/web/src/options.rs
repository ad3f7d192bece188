//! The options of `web` as users see them.

use bigiron_workload::network::NETWORK;
use bigiron_workload::{OptionDef, choice, option};

pub const OPTIONS: &[OptionDef] = &[
    choice(
        "server",
        &["nginx", "apache", "url"],
        "A private nginx or Apache from Debian's archive, or an existing server",
    ),
    option(
        "url",
        "",
        "Document of an existing server, `http://HOST:PORT/PATH` or `https://HOST:PORT/PATH`; needs the server `url`",
    ),
    option(
        "authorities",
        "",
        "File of certificates of the authorities that an `https` URL may rely on; without it, the system's",
    ),
    option(
        "version",
        "auto",
        "Series of the private server, such as `2.4`; `auto`: Debian 12's, nginx 1.22 or Apache 2.4",
    ),
    choice(
        "job",
        &["static-page", "web99", "tls", "c10k", "cgi-db"],
        "What is requested: a page of 21.5 KB and its two images of 25 KB; files of 0.1 to 900 KB and pages made of them as in SPECweb99; one document with TLS; one of 1 \
         KiB beside thousands of idle connections; or a page from a database",
    ),
    choice(
        "tls-load",
        &["handshakes", "bulk"],
        "With `tls`: a new connection for each request for 1 KiB, or requests for 1 MiB on kept connections",
    ),
    choice("tls-version", &["auto", "1.3", "1.2"], "Version of TLS; `auto`: 1.3, or what an existing server takes"),
    choice(
        "gateway",
        &["fastcgi", "cgi"],
        "What makes the pages of `cgi-db`: an application that stays, or with Apache a new process for each page",
    ),
    option(
        "directories",
        "auto",
        "Directories of `web99`, 5 MB each; `auto`: 25 and two for every three connections, as in SPECweb99",
    ),
    choice(
        "dynamic",
        &["yes", "no"],
        "Whether 30 % of `web99`'s requests are for pages that programs make; otherwise, all are for files",
    ),
    option(
        "line-rate",
        "auto",
        "Bits per second of each connection, or `off`; `auto`: 400000 with `web99`, else `off`",
    ),
    option("connections", "auto", "Connections of all clients, 1 to 10000; `auto`: 16, and 10000 with `c10k`"),
    option("busy", "16", "Connections of `c10k` that send requests in the window, while the others are idle"),
    option("threads", "auto", "The driver's threads, which share the connections; `auto`: one per CPU"),
    choice(
        "keep-alive",
        &["yes", "page", "no"],
        "How long a connection is kept: for the whole run, for a page, or for one request",
    ),
    option("pipeline", "1", "Requests of a connection that may be outstanding, 1 to 64"),
    option(
        "rate",
        "off",
        "Requests per second on all connections together, sent whether or not earlier ones were answered; `off`: each connection sends its next request after a response",
    ),
    option(
        "workers",
        "auto",
        "nginx's processes (`auto`: one per CPU), Apache's threads, or its processes with `prefork` (`auto`: enough for all connections)",
    ),
    choice("mpm", &["event", "worker", "prefork"], "Apache's multi-processing module"),
    choice("sendfile", &["yes", "no"], "Whether the server sends documents with sendfile"),
    choice("access-log", &["yes", "no"], "Whether the server writes a line for each request into its access log"),
    choice(
        "reuseport",
        &["no", "yes"],
        "Whether each of nginx's processes has a listening socket of its own (SO_REUSEPORT)",
    ),
    NETWORK,
    option(
        "warmup",
        "auto",
        "Unmeasured part before the window: a number of requests, a time, or `auto`: 2 s on the wall clock, else 500 requests, fewer with `tls` and `cgi-db`",
    ),
    option(
        "length",
        "auto",
        "Measured part: a number of requests, a time, or `auto`: 10 s on the wall clock, else 3000 requests, fewer with `tls` and `cgi-db`",
    ),
];
