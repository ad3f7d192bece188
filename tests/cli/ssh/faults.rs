//! Faults planted on another machine, each with what must come of it (docs/reference/ssh-faults.md).

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use bigiron_archive::spec::KernelSpec;
use bigiron_archive::store::Store;

use super::machine::{ALL, Machine, Setup, of_settings, study};
use super::simulated::Simulated;
use crate::kills::Moments;

/// Two arms of the machine's own kernel that boot.
const BOOTS: [&str; 2] = ["running", "running,boot.audit=0"];

/// Files and settings by which a machine is compared before and after, without the files' times.
const STATE: &str = "cat /boot/grub/grubenv /boot/grub/grub.cfg /efi/loader/loader.conf /efi/loader/entries/* /var/lib/dpkg/status 2>/dev/null; \
                     uname -r; cat /proc/sys/vm/swappiness; \
                     find /boot /efi /lib/modules ! -name random-seed -printf '%M %u %s %p\\n' 2>/dev/null | grep -v ^d | sort";

#[track_caller]
fn same(machine: &Machine, before: &str) {
    let after = machine.says(STATE);
    let differing: Vec<_> = before.lines().zip(after.lines()).filter(|(a, b)| a != b).take(9).collect();
    assert!(before == after, "the machine is not as before: {differing:#?}");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_full_disk_is_refused_before_anything_is_copied() {
    let machine = Machine::start("");
    let test = &machine.test;
    machine.allow(ALL);
    let before = machine.says(STATE);
    // Also what is kept for root; the file system's own blocks are in the last 50 MB.
    let fill = "fallocate -l $(($(stat -f -c \"%f * %S\" /) - 50000000)) /var/tmp/full";
    let brim = format!("{fill}; dd if=/dev/zero of=/var/tmp/brim bs=1M; truncate -s -1M /var/tmp/brim");
    // bigiron's executable does not fit.
    machine.says(&brim);
    machine.ends(&test.run(&of_settings()), 1, &["On `db3`: ", "No space left on device"]);
    machine.says("rm /var/tmp/full /var/tmp/brim");
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &["Nothing to restore"]);
    // Now it is there, but the kernel does not fit.
    machine.says(fill);
    let kernels = study(&["running", "debian:6.12"], &["--no-way-back"]);
    machine.ends(&test.run(&kernels), 2, &["MiB free in `/root/.local/state/bigiron`, and this study needs "]);
    machine.says(&format!("rm /var/tmp/full; {brim}"));
    fs::remove_dir_all(test.dir().join("study")).unwrap();
    machine.ends(&test.run(&study(&BOOTS, &["--no-way-back"])), 2, &["MiB free in `/root/.local/state/bigiron`"]);
    machine.says("rm /var/tmp/full /var/tmp/brim");
    assert_eq!(machine.audited("\"boot "), 0);
    same(&machine, &before);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_power_cut_while_a_kernel_is_installed_leaves_nothing_after_undo() {
    let mut machine = Machine::start_as(&Setup { hosts: "boot-limit = 1800\n", keeps_disk: true, ..Setup::default() });
    machine.allow(ALL);
    let before = machine.says(STATE);
    let words = study(&["running", "debian:6.12"], &["--no-way-back", "--seed=1", "--no-vm-gate"]);
    let mut child = machine.test.start_quiet(&words);
    machine.wait_until("the initramfs is made", || machine.shell("pgrep -x mkinitramfs && ls /lib/modules/6.12*").0);
    machine.cut_power();
    thread::sleep(Duration::from_secs(5));
    let _ = kill_process(Pid::from_child(&child), Signal::KILL);
    child.wait().unwrap();
    // At once: it waits until the machine is up.
    let undone = machine.test.run(&["undo", "--on", "ssh:db3"]);
    machine.ends(&undone, 0, &["waiting up to 1800 s for it", "removed 6.12", "as before: "]);
    same(&machine, &before);
    assert_eq!(machine.audited("\"boot "), 0);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn an_entry_that_grub_boots_for_ever_is_found_by_the_dry_boot() {
    let machine = Machine::start("boot-limit = 1800\n");
    let test = &machine.test;
    machine.allow(ALL);
    // As on a file system that GRUB cannot write to: it reads the name, and does not clear it.
    machine.says("mv /sbin/kexec /sbin/kexec.not; sed -i '/save_env next_entry/d' /boot/grub/grub.cfg");
    let before = machine.says(STATE);
    let ran = test.run(&study(&BOOTS, &["--no-way-back"]));
    let all = ["by grub-reboot into its own kernel", "GRUB did not clear `next_entry`", "`db3` is as before: "];
    machine.ends(&ran, 1, &all);
    assert_eq!(machine.audited("\"boot "), 1, "only the dry boot");
    assert!(!machine.says("cat /proc/cmdline").contains("bigiron.id="));
    same(&machine, &before);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn kernels_are_booted_by_grub() {
    boots_by("grub-reboot", &Setup { hosts: "boot-limit = 1800\n", ..Setup::default() });
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn kernels_are_booted_by_systemd_boot() {
    boots_by(
        "bootctl set-oneshot",
        &Setup { loader: Some("systemd-boot"), hosts: "boot-limit = 1800\n", ..Setup::default() },
    );
}

/// A study on a machine without kexec, interrupted after the first pair.
fn boots_by(method: &str, setup: &Setup<'_>) {
    let machine = Machine::start_as(setup);
    let test = &machine.test;
    machine.allow(ALL);
    machine.says("mv /sbin/kexec /sbin/kexec.not");
    let before = machine.says(STATE);
    machine.ends(&test.run(&["host", "check", "ssh:db3"]), 0, &[&format!("boot method      {method}, for all arms")]);
    let mut child = test.start(&study(&BOOTS, &["--no-way-back"]));
    machine.wait_until("a pair is done", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        test.records("study").len() >= 2
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    for want in [
        &format!("Dry boot of `db3` by {method} into its own kernel"),
        "`db3` boots its own kernel",
        "`db3` is as before: ",
    ] {
        assert!(said.contains(want), "no `{want}` in {said}");
    }
    // A dry one, one for each trial, and perhaps the one that was interrupted.
    let boots = machine.audited(&format!("\"boot .* by {method} for trial"));
    assert!((3..=4).contains(&boots) && boots == machine.audited("\"boot "), "{boots} boots");
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert!(records.matches(&format!("\"machine.booted by\":\"{method}\"")).count() >= 2, "{records}");
    assert!(!machine.says("cat /proc/cmdline").contains("bigiron.id="));
    same(&machine, &before);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_kernel_without_network_has_failed_and_the_power_command_brings_the_machine_back() {
    unreachable("running,boot.systemd.mask=networking.service");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_kernel_without_sshd_has_failed_and_the_power_command_brings_the_machine_back() {
    unreachable("running,boot.systemd.mask=ssh.service");
}

/// The second arm comes up, and cannot be reached.
fn unreachable(arm: &str) {
    let machine = Machine::with_power("boot-limit = 480\n");
    let test = &machine.test;
    machine.allow(ALL);
    let before = machine.says(STATE);
    let ran = test.run(&study(&["running", arm], &["--seed=1"]));
    let all = ["did not come back within 480 s", "its power command was run once, and the machine answers again"];
    machine.ends(&ran, 1, &all);
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert_eq!(records.matches("\"failure\":\"hang\"").count(), 1, "{records}");
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &["the quarantine of `db3` has ended"]);
    same(&machine, &before);
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_machine_that_no_longer_runs_programs_is_reset_by_its_watchdog() {
    let machine = Machine::start_as(&Setup {
        hosts: "boot-limit = 1800\n",
        options: &["-device", "i6300esb"],
        ..Setup::default()
    });
    let test = &machine.test;
    machine.allow(ALL);
    let before = machine.says(STATE);
    // Its own kernel has no driver for it. On the second arm's kernel all programs stop, as if it ran none.
    let script = "! grep -q audit=0 /proc/cmdline || kill -STOP -1";
    let mut words = vec!["compare", "--on", "ssh:db3"];
    words.extend(["debian:6.12", "debian:6.12,boot.audit=0", "--no-vm-gate"]);
    words.extend(["--quick", "--why=0", "--out=study", "--idle-gap=0", "--no-way-back", "--seed=1", "--", "sh", "-c"]);
    words.push(script);
    let mut child = test.start(&words);
    let records = || fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
    machine.wait_until("both arms have a record", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        records().contains("\"kind\":\"completed\"") && records().contains("\"kind\":\"failed\"")
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    let records = records();
    assert!(records.contains("\"machine.watchdog\":\"i6300ESB timer, 180 s\""), "{records}");
    assert!(machine.audited("started the watchdog i6300ESB timer, 180 s") >= 2);
    assert!(!machine.says("cat /proc/cmdline").contains("bigiron.id="));
    same(&machine, &before);
}

/// Trials of half a minute, during which something happens to the machine.
const LONG: [&str; 12] = [
    "compare",
    "--on",
    "ssh:db3",
    "running",
    "running,sysctl.vm.swappiness=11",
    "--quick",
    "--why=0",
    "--out=study",
    "--idle-gap=0",
    "--",
    "sleep",
    "20",
];

/// Does something to the machine while the first trial runs, after which the study must end as if nothing had happened.
fn during_a_trial(script: &str) {
    let machine = Machine::start("");
    let test = &machine.test;
    machine.allow(ALL);
    let mut child = test.start(&LONG);
    machine.wait_until("a trial runs", || {
        assert!(child.try_wait().unwrap().is_none(), "the study has ended");
        machine.shell("pgrep -f 'target [r]un'").0
    });
    machine.says(&format!("systemd-run --quiet --collect /bin/sh -c '{script}'"));
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(test.records("study").len(), 8);
    assert_eq!(machine.audited("\"trial "), 8, "each trial ran once");
    assert_eq!(machine.says("cat /proc/sys/vm/swappiness").trim(), "60");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_network_that_is_away_for_a_minute_loses_nothing() {
    during_a_trial("sleep 2; ip link set eth0 down; sleep 60; ip link set eth0 up");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn an_sshd_that_dies_and_comes_back_loses_nothing() {
    during_a_trial("sleep 2; systemctl stop ssh; pkill -KILL sshd; sleep 45; systemctl start ssh");
}

#[test]
#[ignore = "boots a machine: make test-hosts"]
fn a_study_that_boots_survives_20_kills() {
    let machine = Machine::start("boot-limit = 1800\n");
    let test = &machine.test;
    machine.allow("allow = [\"trials\", \"settings\", \"kernels\", \"reboots\"]\nreboots-per-day = 60");
    let before = machine.says(STATE);
    let words = study(&BOOTS, &["--no-way-back", "--seed=5"]);
    let mut moments = Moments::new(20);
    let mut killed = 0;
    while killed < 20 {
        let mut child = test.start_quiet(&words);
        thread::sleep(Duration::from_secs_f64(2.0 + 22.0 * moments.next()));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    machine.ends(&test.run(&words), 0, &[]);
    machine.ends(&test.run(&["undo", "--on", "ssh:db3"]), 0, &[]);
    assert!(killed >= 15, "the study was over after {killed} kills");
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert_eq!(records.matches("\"kind\":\"completed\"").count(), 8, "{records}");
    assert_eq!(
        (machine.audited("\"trial "), machine.audited("\"boot ")),
        (8, 8),
        "each trial ran once, after one boot"
    );
    same(&machine, &before);
}

/// An image with the head of a real kernel's, whose code is nothing but invalid instructions; it is for any machine.
fn broken() -> Vec<u8> {
    let kernel = Store::open().unwrap().resolve(&KernelSpec::parse("debian:6.1").unwrap(), &|_| {}).unwrap();
    let mut image = fs::read(kernel.image).unwrap();
    // The boot protocol's setup_sects, in sectors behind the first.
    let code = 512 * (usize::from(image[0x1f1]) + 1);
    let is_cloud = |bytes: &[u8]| bytes == b"cloud";
    while let Some(at) = image[..code].windows(5).position(is_cloud) {
        image[at..at + 5].copy_from_slice(b"trial");
    }
    for pair in image[code..].chunks_mut(2) {
        pair.copy_from_slice(&[0x0f, 0x0b][..pair.len()]);
    }
    image
}

#[test]
#[ignore = "boots a VM: make test-hosts"]
fn a_kernel_that_does_not_boot_in_a_vm_is_not_booted_on_a_machine() {
    let Some(machine) = Simulated::start() else { return };
    let test = &machine.test;
    fs::write(test.dir().join("broken"), broken()).unwrap();
    let ran = test.run(&study(&["running", "./broken"], &["--no-way-back"]));
    assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
    for want in
        ["-trial-amd64 in a VM here first", "-trial-amd64 does not boot in a VM here, so it was not booted on `db3`"]
    {
        assert!(ran.stderr.contains(want) || ran.stdout.contains(want), "no `{want}` in {}{}", ran.stdout, ran.stderr);
    }
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    assert_eq!(records.matches("\"kind\":\"failed\"").count(), 1, "{records}");
    let audit = machine.audit();
    assert!(!audit.iter().any(|what| what.contains("-trial-amd64")), "{audit:?}");
    assert!(!machine.command_line().contains("bigiron.id="));
}
