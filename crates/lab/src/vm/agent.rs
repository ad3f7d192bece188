//! The executable that guests get as their PID 1: the agent. `make build` appends it to bigiron's own, so that one file is all that users copy;
//! after it stand its length (16 hexadecimal digits) and [`MAGIC`]. An executable that cargo alone has built has no agent appended and is its own:
//! it can do all that the agent can, and is larger. Guests whose workloads encrypt get the part before the agent, which can too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const MAGIC: &[u8] = b"BIGIRON-AGENT-01";
const LENGTH_DIGITS: usize = 16;
const TRAILER: usize = LENGTH_DIGITS + MAGIC.len();

/// The agent of the running executable.
///
/// # Errors
/// Those of reading the executable; `InvalidData` if it has lost a part of the agent.
pub fn executable() -> io::Result<Vec<u8>> {
    of(&own()?)
}

/// The running executable without its agent: it can do what the agent can, and encrypt.
///
/// # Errors
/// As [`executable`].
pub fn whole() -> io::Result<Vec<u8>> {
    let program = own()?;
    match find(&program)? {
        (0, all) => part(&program, 0, all),
        (start, _) => part(&program, 0, start),
    }
}

fn own() -> io::Result<File> {
    // Not current_exe(): its file may have been replaced since.
    File::open("/proc/self/exe")
}

fn of(program: &File) -> io::Result<Vec<u8>> {
    let (start, length) = find(program)?;
    part(program, start, length)
}

fn part(program: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    program.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// Where the agent begins, and its length.
fn find(program: &File) -> io::Result<(u64, u64)> {
    let size = program.metadata()?.len();
    let mut trailer = [0; TRAILER];
    let end = size.saturating_sub(TRAILER as u64);
    let has_trailer = size >= TRAILER as u64 && {
        program.read_exact_at(&mut trailer, end)?;
        trailer.ends_with(MAGIC)
    };
    if has_trailer {
        let length = std::str::from_utf8(&trailer[..LENGTH_DIGITS]).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the agent in it is damaged; build bigiron again");
        let length = length.ok_or_else(damaged)?;
        Ok((end.checked_sub(length).ok_or_else(damaged)?, length))
    } else {
        Ok((0, size))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of_bytes(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        of(&file)
    }

    #[test]
    fn the_agent_is_what_was_appended() {
        assert_eq!(of_bytes(b"bigironagent0000000000000005BIGIRON-AGENT-01").unwrap(), b"agent");
    }

    #[test]
    fn without_one_the_executable_is_its_own_agent() {
        for program in [&b""[..], b"bigiron", b"a longer program without any trailer at its end"] {
            assert_eq!(of_bytes(program).unwrap(), program);
        }
    }

    #[test]
    fn a_length_beyond_the_file_is_an_error() {
        for length in ["00000000000000ff", "ffffffffffffffff", "               5"] {
            let error = of_bytes(format!("bigiron{length}BIGIRON-AGENT-01").as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "the agent in it is damaged; build bigiron again");
        }
    }
}
