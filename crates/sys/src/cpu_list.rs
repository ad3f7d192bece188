//! Lists of CPUs in the kernel's format.

/// The CPUs of a list such as `0,2-3`, sorted; `None` if it is not a list of one or more.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= 4096 {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_read() {
        assert_eq!(parse("0,2-4"), Some(vec![0, 2, 3, 4]));
        assert_eq!(parse("3,1,1-2\n"), Some(vec![1, 2, 3]));
        for wrong in ["", "a", "1-", "3-1", "-1", "0,", "0-99999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
