//! Encryption in the kernel (kTLS): for how many connections the kernel encrypts what is sent.

use std::fs;

use anyhow::{Context as _, Result, ensure};

/// The kernel's counters of this network name space; there only while the module is loaded.
const STATISTICS: &str = "/proc/net/tls_stat";

/// Connections so far.
///
/// # Errors
/// The kernel has no such encryption.
pub fn connections() -> Result<u64> {
    let text = fs::read_to_string(STATISTICS).with_context(|| {
        format!(
            "`web.ktls` needs a kernel with the module `tls` (CONFIG_TLS), loaded: {STATISTICS} cannot be read; \
             `modprobe tls` loads it, `web.ktls=no` does without"
        )
    })?;
    Ok(counter(&text, "TlsTxSw") + counter(&text, "TlsTxDevice"))
}

/// Connections since there were `before`.
///
/// # Errors
/// There are none: the server has encrypted itself.
pub fn connections_since(before: u64) -> Result<u64> {
    let new = connections()?.saturating_sub(before);
    ensure!(
        new > 0,
        "The kernel has encrypted no connection: this server, or its OpenSSL, was built without kTLS; set `web.ktls` to `no`"
    );
    Ok(new)
}

fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_names() {
        let text = "TlsCurrTxSw                     \t1\nTlsTxSwX \t9\nTlsTxSw                         \t42\n";
        assert_eq!((counter(text, "TlsTxSw"), counter(text, "TlsTxDevice")), (42, 0));
    }
}
