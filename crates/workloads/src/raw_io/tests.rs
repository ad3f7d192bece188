use bigiron_model::clock::Clock;

use super::*;
use bigiron_workload::testing;

fn with<T>(settings: &[(&str, &str)], home: &std::path::Path, work: impl FnOnce(&Matrix, &Context<'_>) -> T) -> T {
    let options = testing::options(&RawIo, settings.iter().copied()).unwrap();
    let spec = Matrix::parse(&options, Clock::Exact).unwrap();
    work(&spec, &testing::context(home))
}

const SMALL: &[(&str, &str)] =
    &[("requests", "40"), ("size", "2M"), ("depth", "4"), ("disks", "2"), ("processes", "1,3")];

#[test]
fn every_cell_is_measured_and_what_was_written_is_there() {
    let home = tempfile::tempdir().unwrap();
    with(SMALL, home.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let outcome = prepared.run(cx).unwrap();
        let declared = spec.metrics();
        assert_eq!((declared.len(), outcome.values.len()), (65, 65));
        assert!(declared.iter().all(|def| def.kind.takes(outcome.values[&def.name])));
        prepared.verify(cx).unwrap();
        // A page of a write that got lost.
        let path = cx.dir.join("disk1");
        let mut bytes = std::fs::read(&path).unwrap();
        let stamp = disk::stamp(cx.seed, 1);
        stamp.put(&mut bytes[8192..12_288], 8192, 0);
        std::fs::write(&path, bytes).unwrap();
        let error = Box::new(PreparedMatrix::of(spec, cx).unwrap()).verify(cx).unwrap_err().to_string();
        assert!(error.contains("Byte 8192 holds write 0x0"), "{error}");
    });
}

#[test]
fn what_is_read_and_does_not_belong_there_ends_the_run() {
    let home = tempfile::tempdir().unwrap();
    with(&[("operations", "read"), ("engines", "sync"), ("blocks", "4K"), ("size", "1M")], home.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let path = cx.dir.join("disk0");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.rotate_left(4096);
        std::fs::write(&path, bytes).unwrap();
        let error = prepared.run(cx).unwrap_err().to_string();
        assert!(error.contains("of the disk holds wrong data"), "{error}");
    });
}

#[test]
fn raw_disks_are_used_where_the_study_gives_them() {
    let options = testing::options(&RawIo, [("disks", "3")]).unwrap();
    assert_eq!(RawIo.parse(&options).unwrap().raw_disks(), Some(RawNeeds { count: 3, bytes: 16 << 20 }));
    let devices: Vec<_> = ["/dev/a", "/dev/b"].map(PathBuf::from).into();
    assert_eq!(disk::paths(&devices, "/x".as_ref(), 2).unwrap(), devices);
    assert!(disk::paths(&devices, "/x".as_ref(), 3).unwrap_err().to_string().contains("has 2 raw disks"));
}
