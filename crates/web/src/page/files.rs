//! The dynamic pages of `web99`: a file in a page, with an advertisement, or after a form was recorded.
//!
//! Invariant: only files of the file set are read, and a form is answered only after its record is in the log.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use bigiron_service::httpd::RUN;
use bigiron_service::instance::DATA;

use super::fastcgi::{self, Call};
use crate::web99::ads::Ads;
use crate::web99::post_log::{self, Posted, read_cookie};
use crate::web99::request::{CGI, PROGRAM, page, replace};
use crate::web99::{CLASSES, FILES, path};

/// The log of POSTs in the server's folder.
pub(super) const LOG: &str = "posts";

/// What answers.
struct Site {
    folder: PathBuf,
    ads: Ads,
    /// Files of all directories.
    count: usize,
}

/// The FastCGI application of the server in `folder`.
pub(super) fn serve(folder: &Path, threads: u32) -> Result<()> {
    let directories = (0..).take_while(|n| data(folder, n * CLASSES * FILES).exists()).count();
    let site = Site { folder: folder.to_owned(), ads: Ads::generate(), count: directories * CLASSES * FILES };
    fastcgi::serve(threads, || Ok(|call: &Call| site.answer(call)))
}

/// The output of the CGI program, which begins in the folder of programs.
pub(super) fn of_program(path: &str) -> Result<Vec<u8>> {
    let said = |name: &str| env::var(name).with_context(|| format!("The server says nothing of {name}"));
    let file = number(path).with_context(|| format!("There is no file `{path}`"))?;
    let file = read(Path::new(super::SERVER), file)?;
    Ok(output(&page(&said("REMOTE_ADDR")?, &said("SCRIPT_NAME")?, &said("QUERY_STRING")?, &file), None))
}

impl Site {
    fn answer(&self, call: &Call) -> Result<Vec<u8>> {
        let (client, program, query) = (call.get("REMOTE_ADDR")?, call.get("SCRIPT_NAME")?, call.get("QUERY_STRING")?);
        if program == PROGRAM {
            return self.start_program(client, query);
        }
        let cookie = call.get("HTTP_COOKIE")?;
        if call.get("REQUEST_METHOD")? == "POST" {
            let form = str::from_utf8(&call.input)?;
            let posted = Posted::parse(form, cookie);
            let posted = posted.with_context(|| format!("`{form}` with the cookie `{cookie}` is not a form"))?;
            ensure!(posted.document < self.count, "There is no file {}", posted.document);
            let file = read(&self.folder, posted.document)?;
            post_log::append(&self.folder.join(RUN).join(LOG), &posted, &name(posted.document))?;
            return Ok(output(&page(client, program, query, &file), None));
        }
        let document = number(query).with_context(|| format!("There is no file `{query}`"))?;
        let mut body = page(client, program, query, &read(&self.folder, document)?);
        if cookie.is_empty() {
            return Ok(output(&body, None));
        }
        let (user, last) = read_cookie(cookie).with_context(|| format!("The cookie `{cookie}` has no user"))?;
        let shown = self.ads.choose(user, last);
        replace(&mut body, document, shown, self.count);
        Ok(output(&body, Some(shown.cookie())))
    }

    /// What a server with CGI does: it starts the program for this request.
    fn start_program(&self, client: &str, query: &str) -> Result<Vec<u8>> {
        let path = query.strip_prefix(CGI).with_context(|| format!("`{query}` names no program"))?;
        let program = self.folder.join(DATA).join(PROGRAM.trim_start_matches('/'));
        let mut command = Command::new(&program);
        command.args(["worker", super::WORKER, "cgi", path]).current_dir(program.parent().unwrap_or(&self.folder));
        command.env_clear().envs([("REMOTE_ADDR", client), ("SCRIPT_NAME", PROGRAM), ("QUERY_STRING", query)]);
        let ended = command.output().with_context(|| format!("Cannot start {}", program.display()))?;
        if !ended.status.success() {
            bail!("The program ended with {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim());
        }
        Ok(ended.stdout)
    }
}

/// The output of a CGI program for this page.
fn output(body: &[u8], cookie: Option<String>) -> Vec<u8> {
    let cookie = cookie.map_or_else(String::new, |cookie| format!("Set-Cookie: {cookie}\r\n"));
    let head = format!("Content-Type: text/html\r\n{cookie}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The path of a file.
fn name(number: usize) -> String {
    path(number / (CLASSES * FILES), number / FILES % CLASSES, number % FILES)
}

/// The number of the file with this path.
fn number(path: &str) -> Option<usize> {
    let (directory, file) = path.strip_prefix("/dir")?.split_once("/class")?;
    let (class, file) = file.split_once('_')?;
    let number = (directory.parse::<usize>().ok()?.checked_mul(CLASSES)?.checked_add(class.parse().ok()?)?)
        .checked_mul(FILES)?
        .checked_add(file.parse::<usize>().ok()?.checked_sub(1)?)?;
    (name(number) == path).then_some(number)
}

fn data(folder: &Path, number: usize) -> PathBuf {
    folder.join(DATA).join(name(number).trim_start_matches('/'))
}

fn read(folder: &Path, number: usize) -> Result<Vec<u8>> {
    let path = data(folder, number);
    fs::read(&path).with_context(|| format!("Cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_set_have_a_number() {
        for n in [0, 35, 36, 12_345] {
            assert_eq!(number(&name(n)), Some(n));
        }
        for path in [
            "",
            "/dir00000/class0_0",
            "/dir00000/class0_10",
            "/dir0/class0_1",
            "/dir00000/class4_1",
            "/dir00000/../x",
            "/dir99999999999999999999/class0_1",
        ] {
            assert_eq!(number(path), None, "{path}");
        }
    }
}
