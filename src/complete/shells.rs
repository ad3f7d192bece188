//! The shells: the script for each, and the form of the candidates that it reads.
//!
//! clap's own scripts do not fit. In bash, readline splits words at `:` and `=`, which most of bigiron's words contain; and the script for zsh
//! shows nothing at the first Tab if zsh loads it from a folder of `fpath`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::engine::{self, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Fish as ClapFish};

/// bash 4.4 and later.
pub(super) struct Bash;
pub(super) struct Zsh;
pub(super) struct Fish;

/// `index` is that of the word at the cursor, set by the script.
fn index() -> Option<usize> {
    std::env::var("_CLAP_COMPLETE_INDEX").ok()?.parse().ok()
}

/// The candidates for the word `index`. An empty word has options as candidates only if it has no others.
fn candidates(
    command: &mut clap::Command,
    mut words: Vec<OsString>,
    index: usize,
    folder: Option<&Path>,
) -> io::Result<Vec<CompletionCandidate>> {
    if words.len() <= index {
        words.resize(index + 1, OsString::new());
    }
    let is_blank = words[index].is_empty();
    let mut found = engine::complete(command, words, index, folder)?;
    let is_option = |c: &CompletionCandidate| c.get_value().as_encoded_bytes().starts_with(b"-");
    if is_blank && !found.iter().all(is_option) {
        found.retain(|c| !is_option(c));
    }
    // A line break would be two candidates.
    found.retain(|c| !c.get_value().as_encoded_bytes().contains(&b'\n'));
    Ok(found)
}

/// One line per candidate, with its description after a tab.
fn described(found: &[CompletionCandidate], out: &mut dyn Write) -> io::Result<()> {
    for candidate in found {
        write!(out, "{}", candidate.get_value().to_string_lossy())?;
        if let Some(help) = candidate.get_help() {
            write!(out, "\t{}", help.to_string().lines().next().unwrap_or_default())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn quoted(completer: &str) -> String {
    format!("'{}'", completer.replace('\'', "'\\''"))
}

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(&self, var: &str, _: &str, bin: &str, by: &str, out: &mut dyn Write) -> io::Result<()> {
        let script = r#"# Completion of bigiron in bash
_bigiron() {
    # Words as the user sees them: readline splits them at ':' and '='.
    local line=${COMP_LINE:0:COMP_POINT} blank word prefix i
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        blank=${line%%[![:space:]]*}
        line=${line#"$blank"}
        ((i < COMP_CWORD)) || word=$line
        line=${line#"$word"}
        if ((${#words[@]})) && [[ -z $blank ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    i=$((${#words[@]} - 1))
    word=${words[i]}
    mapfile -t COMPREPLY < <(VAR=bash _CLAP_COMPLETE_INDEX=$i COMPLETER -- "${words[@]}" 2>/dev/null)
    # Readline replaces only the part after the last ':' or '='.
    prefix=${word%"$2"}
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[=/:.,] ]]; then
        compopt -o nospace
    fi
}
complete -o nosort -o bashdefault -F _bigiron BIN
"#;
        out.write_all(script.replace("VAR", var).replace("BIN", bin).replace("COMPLETER", &quoted(by)).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for candidate in candidates(command, words, index().unwrap_or_default(), folder)? {
            writeln!(out, "{}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}

impl EnvCompleter for Zsh {
    fn name(&self) -> &'static str {
        "zsh"
    }

    fn is(&self, name: &str) -> bool {
        name == "zsh"
    }

    fn write_registration(&self, var: &str, _: &str, bin: &str, by: &str, out: &mut dyn Write) -> io::Result<()> {
        let script = r#"#compdef BIN
# Completion of bigiron in zsh
_bigiron() {
    local line value item
    local -a lines whole begun
    lines=("${(@f)$(VAR=zsh _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) COMPLETER -- "${words[@]}" 2>/dev/null)}")
    for line in $lines; do
        value=${line%%$'\t'*}
        item=${${value//\\/\\\\}//:/\\:}
        [[ $line == *$'\t'* ]] && item+=:${line#*$'\t'}
        # No space after a candidate that needs another part.
        if [[ $value == *[=/:.,] ]]; then begun+=("$item"); else whole+=("$item"); fi
    done
    [[ -n $whole ]] && _describe -V values whole
    [[ -n $begun ]] && _describe -V values begun -S ''
}
if [[ $funcstack[1] == _bigiron ]]; then
    _bigiron "$@"
else
    compdef _bigiron BIN
fi
"#;
        out.write_all(script.replace("VAR", var).replace("BIN", bin).replace("COMPLETER", &quoted(by)).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        described(&candidates(command, words, index().unwrap_or_default(), folder)?, out)
    }
}

impl EnvCompleter for Fish {
    fn name(&self) -> &'static str {
        "fish"
    }

    fn is(&self, name: &str) -> bool {
        name == "fish"
    }

    fn write_registration(&self, var: &str, name: &str, bin: &str, by: &str, out: &mut dyn Write) -> io::Result<()> {
        ClapFish.write_registration(var, name, bin, by, out)
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let index = words.len() - 1;
        described(&candidates(command, words, index, folder)?, out)
    }
}
