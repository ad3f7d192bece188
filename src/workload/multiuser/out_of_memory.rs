//! Whether the kernel has killed processes for want of memory, and what to say of it.
//!
//! Invariant: the kernel's own count decides, never a guess from a signal.

use std::fs;

/// Processes that the kernel has killed for want of memory since it was booted; 0 where it does not count them.
pub fn killed() -> u64 {
    fs::read_to_string("/proc/vmstat").map_or(0, |text| labelled(&text, "oom_kill"))
}

/// What is said of `users` who had too little; `text` is what was seen of it.
pub fn message(users: &str, killed: u64, text: &str) -> String {
    let memory = fs::read_to_string("/proc/meminfo").map_or(0, |text| labelled(&text, "MemTotal:")) >> 10;
    let seen = match killed {
        0 => text.to_owned(),
        1 => format!("the kernel killed a process ({text})"),
        n => format!("the kernel killed {n} processes ({text})"),
    };
    format!("Out of memory with {users}: {seen}; the machine has {memory} MiB, give it more or ask for fewer users")
}

/// The number after `label` on its line.
fn labelled(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse().ok());
    line.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_read() {
        assert_eq!(labelled("nr_dirty 3\noom_kill 12\noom_killer 4\n", "oom_kill"), 12);
        assert_eq!(labelled("nr_dirty 3\n", "oom_kill"), 0);
        let text = message("8 users", 1, "User 3 was ended by signal 9");
        assert!(text.starts_with("Out of memory with 8 users: the kernel killed a process (User 3 was"), "{text}");
        assert!(!text.contains("has 0 MiB"), "{text}");
    }
}
