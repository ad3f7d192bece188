//! libpq's password file: a line `host:port:database:user:password` for each server, `*` for any.
//!
//! Invariant: a file that other users may read is not used, and no error holds a password.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bigiron_model::folder_files;

use super::url::{Host, Password, Url};

/// The file to use: the URL's `passfile`, else `$PGPASSFILE`, else `~/.pgpass`.
pub(super) fn path(url: &Url) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    url.passfile.clone().or_else(|| set("PGPASSFILE")).or_else(|| set("HOME").map(|home| home.join(".pgpass")))
}

/// The password of the first line that fits; `None` if none does, or there is no such file.
///
/// # Errors
/// The file cannot be read, or others may read it.
pub(super) fn find(path: &Path, url: &Url) -> Result<Option<Password>, String> {
    let wrong = |e: io::Error| format!("the password file `{}` cannot be read: {e}", path.display());
    let mode = match std::fs::metadata(path) {
        Ok(meta) => meta.permissions().mode() & 0o7777,
        Err(e) if e.kind() == io::ErrorKind::NotFound && url.passfile.is_none() => return Ok(None),
        Err(e) => return Err(wrong(e)),
    };
    if mode & 0o077 != 0 {
        return Err(format!(
            "other users may read the password file `{0}` (mode {mode:04o}); `chmod 600 {0}`",
            path.display()
        ));
    }
    // By its real path: a user's own link to the file is followed.
    let real = path.canonicalize().map_err(wrong)?;
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return Ok(None) };
    let text = folder_files::read(folder, name).map_err(wrong)?;
    Ok(String::from_utf8_lossy(&text).lines().find_map(|line| password_in(line, url)))
}

fn password_in(line: &str, url: &Url) -> Option<Password> {
    let fields = fields(line.strip_suffix('\r').unwrap_or(line));
    let [host, port, database, user, password] = fields.as_slice() else { return None };
    let is = |field: &str, value: &str| field == "*" || field == value;
    let here = match &url.host {
        Host::Tcp(name) => is(host, name),
        Host::Unix(folder) => is(host, &folder.to_string_lossy()) || host == "localhost",
    };
    let fits = !line.starts_with('#')
        && here
        && is(port, &url.port.to_string())
        && is(database, &url.database)
        && is(user, &url.user);
    fits.then(|| Password::new(password))
}

/// The five fields; `\:` and `\\` stand for the characters themselves, and the last one has the rest of the line.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("there is one").extend(characters.next()),
            _ => fields.last_mut().expect("there is one").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment:1:2:3:4\nshort:line\ndb.example:5432:*:me:one\n*:*:shop:al\\:ice:t\\\\wo:rest\n/run/pg:5432:*:*:three\n";

    fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pgpass");
        std::fs::write(&path, FILE).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let (_dir, path) = file(0o600);
        for (url, want) in [
            ("postgresql://me@db.example/any", Some("one")),
            ("postgresql://me@db.example:5433/any", None),
            ("postgresql://al%3Aice@elsewhere:7/shop", Some("t\\wo:rest")),
            ("postgresql://u@/d?host=/run/pg", Some("three")),
        ] {
            let found = find(&path, &Url::parse(url).unwrap()).unwrap();
            assert_eq!(found.as_ref().map(Password::reveal), want, "{url}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_without_its_words() {
        let url = Url::parse("postgresql://me@db.example/any").unwrap();
        let (_dir, path) = file(0o640);
        let said = find(&path, &url).unwrap_err();
        assert!(said.contains("`chmod 600 ") && !said.contains("one"), "{said}");
        assert_eq!(find(Path::new("/nonexistent"), &url), Ok(None));
        let named = Url { passfile: Some("/nonexistent".into()), ..url };
        find(Path::new("/nonexistent"), &named).unwrap_err();
    }
}
