//! The command line of `bigiron kernel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::complete;

/// Fetch, add, list and remove kernels
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron kernel fetch debian:6.12\n  \
    bigiron kernel add mine --image bzImage --modules DIR\n  \
    bigiron kernel list\n\n\
    `bigiron doc kernels` describes which kernels can be compared.")]
pub struct Kernel {
    #[command(subcommand)]
    pub action: KernelAction,
}

#[derive(Debug, Subcommand)]
pub enum KernelAction {
    /// Fetch kernels into the cache
    #[command(after_help = "Examples:\n  bigiron kernel fetch debian:6.1 debian:6.12/amd64")]
    Fetch {
        /// For example `debian:6.12` or `debian:6.12/amd64`
        #[arg(value_name = "KERNEL", required = true, add = complete::kernel())]
        kernels: Vec<String>,
    },
    /// Add a kernel to the cache under a name
    #[command(after_help = "Examples:\n  \
        bigiron kernel add release debian:6.12\n  \
        bigiron kernel add mine path/to/linux\n  \
        bigiron kernel add mine --image bzImage --modules DIR --config FILE")]
    Add {
        /// The name for use in arms
        name: String,
        /// A .deb, a bzImage, a build tree, `running` or `debian:VERSION`
        #[arg(value_name = "KERNEL", required_unless_present = "image", conflicts_with = "image", add = complete::kernel())]
        kernel: Option<String>,
        /// Boot image (bzImage)
        #[arg(long, value_name = "FILE")]
        image: Option<PathBuf>,
        /// Folder with the image's modules
        #[arg(long, value_name = "DIR", requires = "image")]
        modules: Option<PathBuf>,
        /// Configuration that the image was built with
        #[arg(long, value_name = "FILE", requires = "image")]
        config: Option<PathBuf>,
    },
    /// List the kernels in the cache
    #[command(after_help = "Examples:\n  bigiron kernel list")]
    List,
    /// Remove kernels by name, by release, or by the words with which they were fetched
    #[command(after_help = "Examples:\n  bigiron kernel remove mine\n  bigiron kernel remove debian:6.1")]
    Remove {
        #[arg(value_name = "KERNEL", required = true, add = complete::cached_kernel())]
        kernels: Vec<String>,
    },
}
