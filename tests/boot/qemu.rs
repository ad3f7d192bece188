//! The pinned QEMU, fetched into the cache as on a machine that has another one.

use bigiron_lab::vm::pinned::BUILD;
use bigiron_lab::vm::qemu::Qemu;

use super::{first, test};
use crate::builder::skipped;

#[test]
fn the_fetched_qemu_gives_the_digits_of_the_installed_one() {
    let test = test().program("bin/qemu-system-x86_64", "#!/bin/sh\necho 'QEMU emulator version 99.0.0 (Other 99)'\n");
    let usual = std::env::var("PATH").unwrap();
    let path = format!("{}:{usual}", test.dir().join("bin").display());
    let test = test.path(&path);
    let said = test.run(&["doctor"]).stdout;
    assert!(said.contains("bigiron's cache: ") && said.contains(BUILD), "{said}");
    assert!(said.contains("ok       lockstep") && said.contains("ok       moves"), "{said}");

    let args = ["micro", "--set", "micro.only=null-call"];
    let fetched = first(&test, "fetched", &args);
    assert_eq!(fetched["outcome"]["kind"], "completed", "{fetched}");
    assert_eq!(fetched["host"]["lockstep"], true, "{fetched}");
    assert!(fetched["host"]["qemu"].as_str().unwrap().starts_with("7.2."), "{fetched}");
    let installed = Qemu::find().unwrap();
    if installed.build.as_deref() != Some(&format!("Debian {BUILD}")) {
        return skipped(format!("the installed QEMU {} is another one", installed.version));
    }
    let installed = first(&test.path(&usual), "installed", &args);
    assert_eq!(installed["host"]["qemu"], fetched["host"]["qemu"]);
    for part in ["metrics", "guest", "facts", "counters"] {
        assert_eq!(installed[part], fetched[part], "{part}");
    }
}
