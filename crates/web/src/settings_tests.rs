use bigiron_model::clock::Clock;
use bigiron_workload::testing;

use super::*;
use crate::workload::Web;

fn parse(settings: &[(&str, &str)]) -> Result<Settings, String> {
    let options = testing::options(&Web, settings.iter().copied())?;
    Ok(Settings::parse(&options)?.on(Clock::Exact).clone())
}

#[test]
fn defaults_are_a_private_server_on_kept_connections() {
    let settings = parse(&[]).unwrap();
    let kind = Kind::Nginx { reuseport: false };
    assert_eq!(settings.server, WebServer::Private { kind, workers: None });
    assert_eq!((settings.series.as_str(), settings.keep_alive, settings.rate), ("1.22", KeepAlive::Yes, None));
    assert_eq!((settings.length, settings.threads_on(64)), (RunLength::Operations(3000), 16));
    let options = testing::options(&Web, [("length", "5s")]).unwrap();
    let wall = Settings::parse(&options).unwrap().wall;
    assert_eq!((wall.warm_up, wall.longest(Duration::ZERO, 1)), (RunLength::Time(TIMES.0), Duration::from_secs(7)));
    let apache = parse(&[("server", "apache"), ("mpm", "prefork"), ("workers", "20")]).unwrap();
    let kind = Kind::Apache { mpm: Mpm::Prefork };
    assert_eq!(apache.server, WebServer::Private { kind, workers: Some(20) });
    let c10k = parse(&[("job", "c10k")]).unwrap();
    assert_eq!((c10k.connections, c10k.driven(), c10k.threads_on(64), c10k.files()), (10_000, 16, 16, 15_256));
    let tls = parse(&[("job", "tls"), ("tls-version", "1.2")]).unwrap();
    assert_eq!((tls.job, tls.keep_alive, tls.tls_version), (Job::Handshakes, KeepAlive::No, Some(TlsVersion::V12)));
    assert!(tls.is_encrypted());
    let tls = parse(&[("job", "tls"), ("tls-load", "bulk"), ("pipeline", "2")]).unwrap();
    assert!(tls.job == Job::Bulk && tls.keep_alive == KeepAlive::Yes);
    assert_eq!(tls.length, RunLength::Operations(TRANSFERS.1));
    let web99 = parse(&[("job", "web99"), ("connections", "1000")]).unwrap();
    assert_eq!((web99.line_rate, web99.directories), (Some(400_000.0), 680));
    assert_eq!((web99.dynamic, web99.gateway()), (true, Some(Gateway::Both)));
    let plain = parse(&[("job", "web99"), ("line-rate", "off"), ("dynamic", "no")]).unwrap();
    assert_eq!((plain.line_rate, plain.gateway()), (None, None));
}

#[test]
fn what_cannot_be_or_has_no_effect_is_refused() {
    for (settings, words) in [
        (&[("connections", "0")][..], "`web.connections` cannot be `0`; it can be 1 to 10000, or `auto`"),
        (&[("job", "cgi-db"), ("gateway", "cgi")], "it can be `fastcgi` with nginx"),
        (&[("gateway", "cgi")], "`web.gateway` has no effect with `web.job` `static-page`"),
        (&[("job", "cgi-db"), ("sendfile", "no")], "`web.sendfile` has no effect with `web.job` `cgi-db`"),
        (&[("dynamic", "no")], "`web.dynamic` has no effect with `web.job` `static-page`"),
        (&[("server", "url"), ("url", "http://127.0.0.1/"), ("network", "veth")], "`web.network` has no effect with"),
        (&[("busy", "2")], "`web.busy` has no effect with `web.job` `static-page`"),
        (&[("job", "c10k"), ("connections", "9")], "`web.busy` cannot be `16`; it can be fewer than the number of"),
        (&[("job", "c10k"), ("connections", "16")], "`web.busy` cannot be `16`; it can be fewer than the number of"),
        (
            &[("job", "tls"), ("tls-load", "bulk"), ("sendfile", "no")],
            "`web.sendfile` has no effect with `web.job` `tls`",
        ),
        (&[("job", "cgi-db"), ("keep-alive", "page")], "`yes` or `no` with `web.job` `cgi-db`"),
        (
            &[("server", "url"), ("url", "http://127.0.0.1/"), ("keep-alive", "page")],
            "`yes` or `no` with `web.server` `url`",
        ),
        (
            &[("server", "apache"), ("workers", "53")],
            "it can be `auto`, 51 or 54: 3 processes with equally many threads",
        ),
        (
            &[("server", "apache"), ("mpm", "prefork"), ("keep-alive", "no"), ("connections", "2000")],
            "at most 1000 with",
        ),
        (&[("job", "c10k"), ("keep-alive", "no")], "`web.keep-alive` has no effect with `web.job` `c10k`"),
        (&[("job", "c10k"), ("server", "apache"), ("mpm", "worker")], "at most 1000 with `web.mpm` `worker`"),
        (&[("threads", "x")], "`web.threads` cannot be `x`; it can be 1 to 256, or `auto`"),
        (&[("threads", "20")], "at most the number of connections"),
        (&[("rate", "-1")], "requests per second"),
        (&[("length", "0")], "1 request or more"),
        (&[("length", "x")], "a number of requests such as `3000`"),
        (&[("version", "15")], "two numbers such as `1.26`"),
        (&[("mpm", "worker")], "`web.mpm` has no effect with `web.server` `nginx`; omit it"),
        (&[("server", "apache"), ("reuseport", "yes")], "`web.reuseport` has no effect"),
        (&[("server", "url")], "`web.server` `url` needs `web.url`"),
        (&[("url", "http://127.0.0.1/")], "`web.url` has no effect with `web.server` `nginx`"),
        (&[("server", "url"), ("url", "ftp://x")], "`web.url` cannot be `ftp://x`"),
        (&[("server", "url"), ("url", "http://127.0.0.1/"), ("sendfile", "no")], "`web.sendfile` has no effect"),
        (&[("tls-version", "1.2")], "`web.tls-version` has no effect with `web.job` `static-page`"),
        (&[("authorities", "/x")], "`web.authorities` has no effect with `web.server` `nginx`"),
        (
            &[("server", "url"), ("url", "http://127.0.0.1/"), ("authorities", "/x")],
            "`web.authorities` has no effect with `web.url` `http://127.0.0.1/`",
        ),
        (&[("tls-load", "bulk")], "`web.tls-load` has no effect"),
        (&[("job", "tls"), ("keep-alive", "no")], "`web.keep-alive` has no effect with `web.job` `tls`"),
        (&[("job", "tls"), ("pipeline", "2")], "`web.pipeline` has no effect with `web.tls-load` `handshakes`"),
        (&[("directories", "2")], "`web.directories` has no effect with `web.job` `static-page`"),
        (&[("line-rate", "9")], "bits per second from 1000"),
        (&[("job", "web99"), ("rate", "9")], "`web.rate` has no effect with `web.line-rate`"),
        (&[("line-rate", "1e6"), ("pipeline", "2")], "`web.pipeline` has no effect with `web.line-rate`"),
        (&[("keep-alive", "no"), ("pipeline", "2")], "`web.pipeline` has no effect with `web.keep-alive` `no`"),
        (&[("rate", "100"), ("pipeline", "2")], "`web.pipeline` has no effect with `web.rate`"),
        (&[("rate", "100"), ("keep-alive", "page")], "cannot be `page` with `web.rate`"),
        (&[("server", "apache"), ("mpm", "worker"), ("workers", "15")], "at least 16 with `web.mpm` `worker`"),
        (&[("server", "apache"), ("mpm", "prefork"), ("connections", "2000")], "at most 1000 with"),
        (&[("sendfile", "maybe")], "it can be `yes` or `no`"),
    ] {
        let said = parse(settings).unwrap_err();
        assert!(said.contains(words), "{settings:?}: {said}");
    }
}

#[test]
fn a_long_run_is_no_hang_and_has_room() {
    let longest = |settings: &[(&str, &str)]| {
        let settings = parse(settings).unwrap();
        (settings.longest(Duration::from_millis(10), 20).as_secs(), settings.requests())
    };
    assert_eq!(longest(&[("warmup", "0"), ("length", "500000")]), (5_000, 500_000));
    assert_eq!(longest(&[("warmup", "0"), ("length", "5m")]), (6_000, 30_000_000));
    // A request a second, however fast it is answered.
    assert_eq!(longest(&[("warmup", "0"), ("length", "3000"), ("rate", "1")]), (3_000, 3_000));
    // 16 connections, each with a document of 16,000 bytes in 3.2 s.
    let slow = [("job", "web99"), ("line-rate", "40000"), ("connections", "16"), ("warmup", "0"), ("length", "1000")];
    assert_eq!(longest(&slow), (200, 1_000));
}
