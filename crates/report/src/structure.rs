//! The data structures that kernel functions read and write, by the functions' names: where the model sees a function miss the caches, a reader wants to
//! know what it missed.
//!
//! The model knows a miss by its function, not by its object. So only functions that work on one kind of object are named here, whose misses are to be
//! found there for the most part; of others nothing is said.

use super::subsystem::fits;

/// Data structures, and names of functions as in the table of subsystems. The first match decides.
const STRUCTURES: &[(&str, &[&str])] = &[
    (
        "memory that is cleared or copied",
        &[
            "memcpy*",
            "__memcpy*",
            "memmove*",
            "memset*",
            "__memset*",
            "clear_page*",
            "copy_page",
            "copy_user*",
            "_copy_to*",
            "_copy_from*",
            "copy_mc*",
            "rep_movs*",
            "rep_stos*",
            "strncpy_from_user",
        ],
    ),
    ("maple tree nodes", &["mas_*", "mtree_*", "mt_find*"]),
    ("xarray nodes", &["xas_*", "xa_*", "__xa_*", "filemap_get_entry"]),
    (
        "radix tree nodes",
        &["radix_tree_*", "__radix_tree_*", "null_insert_page", "null_lookup_page", "__null_lookup_page"],
    ),
    ("red-black tree nodes", &["rb_*", "__rb_*", "timerqueue_*"]),
    ("B-tree nodes", &["btrfs_search_slot*", "xfs_btree_*", "btrfs_bin_search*"]),
    (
        "objects of the slab allocator",
        &[
            "kmem_cache_alloc*",
            "__kmem_cache_alloc*",
            "kmem_cache_free*",
            "__kmem_cache_free*",
            "__slab_free*",
            "___slab_alloc*",
            "__slab_alloc*",
            "kfree",
            "kmalloc_*",
            "__kmalloc*",
        ],
    ),
    (
        "page tables",
        &[
            "zap_p*_range",
            "unmap_page_range",
            "copy_p*_range",
            "change_p*_range",
            "free_pgd_range",
            "next_uptodate_*",
            "filemap_map_pages",
            "set_pte_range",
            "do_set_pte",
            "page_vma_mapped_walk",
            "follow_page_*",
            "gup_*",
            "walk_p*_range",
        ],
    ),
    (
        "page descriptors",
        &[
            "folio_*",
            "__folio_*",
            "free_unref_*",
            "free_pcppages_bulk",
            "__free_one_page",
            "rmqueue*",
            "__rmqueue*",
            "get_page_from_freelist",
            "release_pages",
            "lru_*",
            "page_add_*",
            "page_remove_rmap*",
        ],
    ),
    ("memory areas", &["find_vma*", "vma_*", "lock_vma_under_rcu", "anon_vma_*", "unlink_anon_vmas", "__anon_vma_*"]),
    (
        "scheduling entities",
        &[
            "update_load_avg*",
            "__update_load_avg*",
            "pick_eevdf",
            "__pick_eevdf",
            "__enqueue_entity",
            "enqueue_*entity",
            "dequeue_entit*",
            "update_curr*",
            "pick_next_entity*",
            "set_next_entity",
            "put_prev_entity",
            "vruntime_eligible",
            "place_entity",
        ],
    ),
    ("timers", &["hrtimer_*", "__hrtimer_*", "__mod_timer", "enqueue_timer", "detach_if_pending", "__run_timers*"]),
    (
        "directory entries",
        &["__d_lookup*", "d_lookup", "d_alloc*", "dput", "lookup_fast", "shrink_dentry_list*", "__dentry_kill"],
    ),
    (
        "inodes",
        &["iget*", "ilookup*", "find_inode*", "iput", "new_inode*", "ext4_mark_iloc_dirty", "ext4_fill_raw_inode"],
    ),
    ("open files", &["fget*", "__fget*", "fput*", "__fput*", "do_dentry_open", "alloc_empty_file"]),
    ("socket buffers", &["skb_*", "__skb_*", "__alloc_skb", "kfree_skb*", "consume_skb", "__kfree_skb"]),
    ("sockets", &["tcp_*", "sock_*", "__tcp_*", "inet_*", "unix_*"]),
    ("block requests", &["bio_*", "blk_mq_*", "__blk_mq_*", "blk_*", "submit_bio*"]),
    ("wait queues of futexes", &["futex_*", "__futex_*"]),
];

/// What a kernel function's misses are of, for the most part.
pub fn of(function: &str) -> Option<&'static str> {
    STRUCTURES
        .iter()
        .find(|(_, functions)| functions.iter().any(|pattern| fits(pattern, function)))
        .map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_work_on_one_kind_of_object_name_it() {
        for (function, structure) in [
            ("xas_load", "xarray nodes"),
            ("mas_wr_store_entry", "maple tree nodes"),
            ("kmem_cache_free_bulk", "objects of the slab allocator"),
            ("zap_pte_range", "page tables"),
            ("clear_page_erms", "memory that is cleared or copied"),
            ("copy_page_range", "page tables"),
            ("folio_batch_move_lru", "page descriptors"),
            ("__d_lookup_rcu", "directory entries"),
        ] {
            assert_eq!(of(function), Some(structure), "{function}");
        }
        for none in ["user: /init", "entry_SYSCALL_64", "__schedule", "do_syscall_64", "vfs_read"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn no_pattern_is_hidden_by_one_before_it() {
        let all: Vec<_> =
            STRUCTURES.iter().flat_map(|(name, functions)| functions.iter().map(move |f| (*name, *f))).collect();
        for (name, pattern) in &all {
            assert_eq!(of(&pattern.replacen('*', "te", 1).replace('*', "")), Some(*name), "{pattern}");
        }
    }
}
