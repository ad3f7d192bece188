//! Loadfiles that others have made.

use std::collections::BTreeSet;

use bigiron_model::fuzz_target;

use super::{Packets, RequestKind, Size, generate, parse};

const WORDS: &[&str] = &[
    "NTCreateX",
    "Close",
    "ReadX",
    "WriteX",
    "Flush",
    "LockX",
    "UnlockX",
    "Unlink",
    "Rename",
    "Mkdir",
    "Rmdir",
    "Deltree",
    "QUERY_PATH_INFORMATION",
    "QUERY_FILE_INFORMATION",
    "QUERY_FS_INFORMATION",
    "SET_FILE_INFORMATION",
    "FIND_FIRST",
    "NT_STATUS_OK",
    "NT_STATUS_OBJECT_NAME_NOT_FOUND",
    "NT_STATUS_NO_SUCH_FILE",
    "*",
    "0x",
    "0xffffffffffffffff",
    "+1",
    "\"\\clients\\client1\"",
    "\"\\clients\"",
    "\"\\clients\\client1\\..\\a\"",
    "\"\\CLIENTS\\CLIENT1é\"",
    "\"",
    "\\",
    "/",
    "LOOP",
    "REPEAT",
    "SLEEP",
    "16777216",
    "#",
    "\u{a0}",
    "\u{2028}",
];

#[test]
fn loadfiles() {
    let whole = generate(Size { requests: 400, seed: 1 }).to_string();
    let lines: Vec<&str> = whole.lines().collect();
    let mut seeds: Vec<Vec<u8>> = vec![lines[..lines.len().min(60)].join("\n").into_bytes()];
    // A line of each kind, with what comes before it.
    for (_, word, _) in RequestKind::ALL {
        if let Some(at) = lines.iter().position(|line| line.starts_with(word)) {
            seeds.push(lines[at.saturating_sub(8)..=at].join("\n").into_bytes());
        }
    }
    fuzz_target!(loadfiles, seeds, WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let file = parse("a.txt", &text).map_err(|e| e.to_string())?;
        // What replays ask of it.
        let bytes = file.bytes();
        let packets = file.requests.iter().filter_map(|r| Packets::of(&file, r)).count();
        assert!(file.without_farewell() <= file.requests.len() && u64::from(file.longest()) <= 16 << 20);
        let counted: usize = RequestKind::ALL.iter().map(|(kind, ..)| file.count(*kind)).sum();
        assert_eq!(counted, file.requests.len());
        // The printed form is the same file.
        let printed = file.to_string();
        let again = parse("a.txt", &printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(again.to_string(), printed);
        let kinds: BTreeSet<&str> = file.requests.iter().map(|r| r.action.kind().word()).collect();
        Ok(format!("{} {} {} {kinds:?}", bytes.0 > 0, packets > 0, file.starts_afresh()))
    });
}
