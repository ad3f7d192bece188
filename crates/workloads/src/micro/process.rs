//! Processes and threads: made and waited for.

use std::hint::black_box;

use super::bench::{Bench, Window};
use bigiron_sys::process::{Program, fork_exit};

/// Arguments that make this executable a program which does nothing: what `fork-exec` runs.
pub const EXIT_ARGUMENTS: [&str; 2] = ["worker", "exit"];

pub fn fork(b: &Bench<'_>) -> anyhow::Result<Window> {
    on_one_page(|| b.time(|| fork_exit()?.wait()?.success("The forked child")))
}

pub fn exec(b: &Bench<'_>) -> anyhow::Result<Window> {
    let program = Program::new(b.executable, &EXIT_ARGUMENTS)?;
    let name = format!("`{} worker exit`", b.executable.display());
    on_one_page(|| b.time(|| program.fork_exec()?.wait()?.success(&name)))
}

pub fn thread(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| {
        let thread = std::thread::Builder::new().spawn(|| ())?;
        thread.join().map_err(|_| std::io::Error::other("The thread panicked"))
    })
}

/// Runs `body` with its stack frames, up to 4 KiB of them, on one page.
///
/// After a fork the parent and the child each fault on every page of the stack that they write to. The kernel starts a stack
/// at a random place within a page, so without this the frames of a fork's loop lie on one page in most boots and on two in
/// some: up to two faults more of some eight per fork, which have nothing to do with the kernel under test.
fn on_one_page<R>(body: impl FnOnce() -> R) -> R {
    #[repr(align(4096))]
    struct Page(u8);

    #[inline(never)]
    fn below(body: &mut dyn FnMut()) {
        // The page makes this frame end where a page of memory does; what is called begins the next.
        let page = Page(0);
        body();
        black_box(&page.0);
    }

    let (mut body, mut value) = (Some(body), None);
    below(&mut || value = body.take().map(|body| body()));
    value.expect("the body ran")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address of something in a frame of a function that is called from `on_one_page`.
    #[inline(never)]
    fn address_of_a_frame() -> usize {
        on_one_page(|| {
            let here = 0_u8;
            black_box(&here) as *const u8 as usize
        })
    }

    #[inline(never)]
    fn deeper_by<const BYTES: usize>() -> usize {
        let frame = [0_u8; BYTES];
        let address = address_of_a_frame();
        black_box(&frame);
        address
    }

    #[test]
    fn frames_begin_at_the_top_of_a_page_wherever_the_stack_is() {
        let places =
            [deeper_by::<16>(), deeper_by::<1000>(), deeper_by::<2000>(), deeper_by::<3000>(), deeper_by::<4000>()];
        assert!(places.iter().any(|place| place / 4096 != places[0] / 4096), "{places:x?}");
        for place in places {
            assert_eq!(place % 4096, places[0] % 4096, "{places:x?}");
            assert!(place % 4096 > 4096 - 512, "{places:x?}");
        }
    }
}
