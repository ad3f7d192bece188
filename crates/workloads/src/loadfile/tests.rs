use super::*;

fn error(text: &str) -> String {
    parse("load.txt", text).unwrap_err().to_string()
}

const OPEN: &str = "NTCreateX \"\\clients\\client1\\a\" 0x40 0x2 7 NT_STATUS_OK\n";

#[test]
fn requests_of_every_kind_are_read_and_printed() {
    let text = format!(
        "{}{OPEN}{}",
        "Deltree \"\\clients\\client1\" NT_STATUS_OK\nMkdir \"\\clients\" NT_STATUS_OK\n",
        r#"WriteX 7 65534 1 1 NT_STATUS_OK
ReadX 7 0 4096 4096 NT_STATUS_OK
Flush 7 NT_STATUS_OK
LockX 7 2147483538 1 NT_STATUS_OK
UnlockX 7 2147483538 1 NT_STATUS_OK
QUERY_FILE_INFORMATION 7 258 NT_STATUS_OK
SET_FILE_INFORMATION 7 1004 NT_STATUS_OK
Close 7 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\b c" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
QUERY_FS_INFORMATION 259 NT_STATUS_OK
FIND_FIRST "\clients\client1\*" 260 1366 3 NT_STATUS_OK
Rename "\clients\client1\a" "\clients\client1\b" NT_STATUS_OK
Unlink "\clients\client1\b" 0x6 NT_STATUS_OK
Rmdir "\clients\client1" NT_STATUS_OK
"#
    );
    let file = parse("load.txt", &text).unwrap();
    assert_eq!(file.to_string(), text);
    assert!(RequestKind::ALL.iter().all(|(kind, ..)| file.count(*kind) == 1));
    assert_eq!((file.bytes(), file.longest()), ((4096, 1), 4096));
    assert!(file.starts_afresh());
}

#[test]
fn blank_lines_and_comments_count_as_lines_only() {
    let file = parse("load.txt", "# by hand\n\nMkdir \"/clients/CLIENT1/Sub\" NT_STATUS_OK\r\n").unwrap();
    assert_eq!(file.requests[0].line, 3);
    assert_eq!(file.paths, ["client1/Sub"]);
    assert!(!file.starts_afresh());
}

#[test]
fn a_wrong_line_is_refused_with_what_would_be_right() {
    for (line, says) in [
        ("Clsoe 7 NT_STATUS_OK", "load.txt:2: `Clsoe` is not a request; did you mean `Close`?"),
        ("Close 7", "load.txt:2: The status is missing; a Close ends with one, such as `NT_STATUS_OK`"),
        ("Close NT_STATUS_OK", "load.txt:2: The handle is missing; write `Close HANDLE STATUS`"),
        ("Close 8 NT_STATUS_OK", "load.txt:2: Handle 8 is not open; an NTCreateX must open it first"),
        ("Close 7 NT_STATUS_OKAY", "load.txt:2: `NT_STATUS_OKAY` is not a known status; did you mean `NT_STATUS_OK`?"),
        ("Close 7 NT_STATUS_OK 5", "load.txt:2: `5` is superfluous; a line ends with its status"),
        ("ReadX 7 0 x 1 NT_STATUS_OK", "load.txt:2: `x` is not a size; write `ReadX HANDLE OFFSET SIZE READ STATUS`"),
        ("ReadX 7 0 8 9 NT_STATUS_OK", "load.txt:2: The number of bytes read 9 is too large; at most 8"),
        ("WriteX 7 0 8 7 NT_STATUS_OK", "both numbers must be the same"),
        ("ReadX 7 0 99999999 9 NT_STATUS_OK", "at most 16777216"),
        ("Mkdir clients NT_STATUS_OK", "write it in quotation marks"),
        ("Mkdir \"\\clients NT_STATUS_OK", "A quotation mark is not closed"),
        ("Mkdir \"\\etc\" NT_STATUS_OK", "outside the clients' directories"),
        ("Mkdir \"\\clients\\client1\\..\\x\" NT_STATUS_OK", "must not contain `.` and `..`"),
        ("Mkdir \"\\clients\\client2\" NT_STATUS_OK", "belongs to another client"),
        ("NTCreateX \"\\clients\\client1\\a\" 0x40 0x9 7 NT_STATUS_OK", "9 is not a disposition"),
    ] {
        let said = error(&format!("{OPEN}{line}\n"));
        assert!(said.starts_with("load.txt:2: ") && said.contains(says), "{said}");
    }
    assert!(error("").contains("has no requests"));
}

#[test]
fn what_newer_loadfiles_have_is_refused_by_its_name() {
    for (line, says) in [
        ("0.001 Close 7 NT_STATUS_OK", "timed loadfiles of newer versions are not supported"),
        ("LOOP 10", "`LOOP` of newer loadfiles"),
        ("RANDOMSTRING 1 \"[AB]\"", "`RANDOMSTRING` of newer loadfiles"),
        ("WRITEPATTERN \"x\"", "`WRITEPATTERN` of newer loadfiles"),
        ("NFSPROC3_GETATTR \"/x\" 0", "loadfiles of NFS are not supported"),
        ("ReadX 7 +4096 8 8 NT_STATUS_OK", "`+4096`: computed values"),
        ("Close 7 *", "A status `*`"),
    ] {
        let said = error(&format!("{OPEN}{line}\n"));
        assert!(said.starts_with("load.txt:2: ") && said.contains(says), "{said}");
    }
}

#[test]
fn packets_are_as_large_as_were_seen_on_the_wire() {
    // Requests and replies of tbench 4 for these lines, including lengths.
    let text = r#"Mkdir "\clients" NT_STATUS_OK
Mkdir "\clients\client1" NT_STATUS_OK
NTCreateX "\clients\client1\d" 0x1 0x2 100 NT_STATUS_OK
WriteX 100 0 65536 65536 NT_STATUS_OK
ReadX 100 65000 4096 536 NT_STATUS_OK
Flush 100 NT_STATUS_OK
LockX 100 9 1 NT_STATUS_OK
SET_FILE_INFORMATION 100 1004 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\q" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
FIND_FIRST "\clients\client1\*" 260 1366 3 NT_STATUS_OK
FIND_FIRST "\clients\client1\f.*" 260 1366 0 NT_STATUS_NO_SUCH_FILE
Rename "\clients\client1\a" "\clients\client1\aa" NT_STATUS_OK
Close 100 NT_STATUS_OK
"#;
    let seen = [
        (61, 39),
        (77, 39),
        (112, 87),
        (65_595, 55),
        (59, 595),
        (41, 39),
        (51, 39),
        (71, 47),
        (93, 71),
        (97, 309),
        (101, 39),
        (125, 39),
        (47, 39),
    ];
    let file = parse("load.txt", text).unwrap();
    let sizes = file.requests.iter().map(|r| Packets::of(&file, r).unwrap());
    assert!(sizes.eq(seen.map(|(request, answer)| Packets { request, answer })));
    let tree = parse("load.txt", "Deltree \"\\clients\\client1\" NT_STATUS_OK").unwrap();
    assert_eq!(Packets::of(&tree, &tree.requests[0]), None);
}

#[test]
fn a_generated_file_has_the_statistics_and_reads_back() {
    let size = Size { requests: 20_000, seed: 1 };
    let file = generate(size);
    assert_eq!(generate(size), file);
    assert_ne!(generate(Size { seed: 2, ..size }), file);
    let again = parse("generated", &file.to_string()).unwrap();
    assert!(again.to_string() == file.to_string());
    let near = |what: &str, is: usize, per_pass: f64, tolerance: f64| {
        let wanted = per_pass * file.requests.len() as f64 / 458_344.0;
        assert!((is as f64 / wanted - 1.0).abs() < tolerance, "{what}: {is}, not {wanted}");
    };
    for (kind, per_pass) in [
        (RequestKind::Read, 124_199.0),
        (RequestKind::Create, 79_230.0),
        (RequestKind::QueryPath, 71_814.0),
        (RequestKind::Close, 58_200.0),
        (RequestKind::Write, 39_502.0),
        (RequestKind::Find, 27_765.0),
        (RequestKind::Unlink, 16_000.0),
        (RequestKind::QueryFs, 13_168.0),
        (RequestKind::QueryFile, 12_585.0),
        (RequestKind::SetFile, 6_454.0),
        (RequestKind::Flush, 5_553.0),
        (RequestKind::Rename, 3_355.0),
    ] {
        near(kind.word(), file.count(kind), per_pass, 0.05);
    }
    let failing = file.requests.iter().filter(|r| r.status != Status::Ok).count();
    near("expected errors", failing, 59_743.0, 0.05);
    let (read, written) = file.bytes();
    near("bytes read", read as usize, 1_472_088_767.0, 0.05);
    near("bytes written", written as usize, 1_015_974_170.0, 0.05);
    assert!((150..230).contains(&again.paths.len()), "{} paths", again.paths.len());
    assert_eq!(file.without_farewell(), file.requests.len() - 1);
}

#[test]
fn the_smallest_file_is_whole() {
    let file = generate(Size { requests: 200, seed: 9 });
    assert!(file.requests.len() > 150 && file.count(RequestKind::Read) > 20 && file.count(RequestKind::Flush) > 0);
    parse("generated", &file.to_string()).unwrap();
}
