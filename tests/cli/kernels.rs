//! Kernels that boot nowhere but are whole as far as their headers go, and the subcommand `kernel`.

use crate::builder::Test;

/// A bzImage for x86-64 of `release`, with nothing in it.
pub fn bzimage(release: &str) -> Vec<u8> {
    let mut image = vec![0; 5 * 512];
    image[0x1f1] = 4;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
    image[0x20e..0x210].copy_from_slice(&[0x00, 0x02]);
    image[0x211] = 1;
    image[0x236] = 1;
    let banner = format!("{release} (builder@example) #1 SMP\0");
    image[0x400..0x400 + banner.len()].copy_from_slice(banner.as_bytes());
    image
}

#[test]
fn a_kernel_is_added_listed_and_removed() {
    let test = Test::new().file("bzImage", bzimage("6.12.1-mine"));
    test.run(&["kernel", "add", "mine", "--image", "bzImage"]).status(0).stdout_has("mine  6.12.1-mine");
    test.run(&["kernel", "list"]).status(0).stdout_has("6.12.1-mine");
    test.run(&["kernel", "remove", "mine"]).status(0);
    let ran = test.run(&["kernel", "list"]).status(0);
    assert_eq!(ran.stdout, "");
}

#[test]
fn what_is_no_kernel_is_not_added() {
    let test =
        Test::new().file("text", "not a kernel").file("bad.deb", "not a package").file("bzImage", bzimage("6.12.1"));
    test.run(&["kernel", "add", "mine", "--image", "text"]).refused("is not a usable kernel image");
    test.run(&["kernel", "add", "mine", "bad.deb"]).refused("is not a usable Debian package");
    test.run(&["kernel", "add", "micro", "--image", "bzImage"]).refused("`micro` is a workload");
    test.run(&["kernel", "add", "running", "--image", "bzImage"]).refused("cannot be a kernel's name");
    test.run(&["kernel", "add", "mine"]).refused("required");
    test.run(&["kernel", "remove", "other"]).refused("see `bigiron kernel list`");
    assert_eq!(test.run(&["kernel", "list"]).status(0).stdout, "");
}
