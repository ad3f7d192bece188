//! The command line of `bigiron worker` and `bigiron fleet`.

use std::path::PathBuf;

use bigiron_model::qemu::QemuSource;
use clap::{Args, Subcommand};

use super::number::whole;
use super::qemu_source;
use crate::complete;

/// Run trials of a prepared study, alongside other workers
///
/// `bigiron run STUDY --prepare` writes the study's folder. All workers need this executable, QEMU, and a shared file system with the
/// folder and bigiron's cache. A worker skips trials that have a result. Running a trial twice does no harm: on the exact clock both
/// results must be identical; otherwise the worker fails and the study cannot be judged. To print the report, repeat `bigiron run STUDY`
/// without `--prepare`.
///
/// Exits with 0 when its trials have results, even if a kernel failed in them; with 1 if this machine could not run a trial (another
/// machine may), or if a result differed; with 2 if this machine's bigiron, QEMU or kernels are not those of the study.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron run kernel-upgrade --prepare --out DIR\n  \
    bigiron worker DIR --claim\n  \
    bigiron worker DIR --slot 7\n  \
    bigiron run kernel-upgrade --out DIR")]
pub struct Worker {
    /// The study's folder
    #[arg(value_name = "STUDY", add = complete::study_folder())]
    pub dir: PathBuf,
    /// Run the trial of this slot of the plan, counted from 0
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", required_unless_present = "claim", conflicts_with = "claim")]
    pub slot: Option<u32>,
    /// Run trials one after another, except those that other workers are running, until all trials have results
    #[arg(long)]
    pub claim: bool,
    /// Name of this machine in messages and files [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,
    /// QEMU that runs the guests, pinned or system; the same as when the study was prepared
    #[arg(long, value_name = "QEMU", value_parser = qemu_source())]
    pub qemu: Option<QemuSource>,
    /// The file of a study of the host `sim`, whose script (`[sim]`) the study's folder does not have
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// Print a prepared study as a job for a cluster
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bigiron fleet kubernetes DIR --image bigiron:1 --claim bigiron-data")]
pub struct Fleet {
    #[command(subcommand)]
    pub engine: FleetEngine,
}

#[derive(Debug, Subcommand)]
pub enum FleetEngine {
    Kubernetes(Kubernetes),
}

/// Print an Indexed Job for Kubernetes (1.29 or later)
///
/// Each index is a slot of the study. Ordinary pods are sufficient: the exact clock needs no /dev/kvm. All pods share a volume with the
/// study's folder and bigiron's cache. Kubernetes replaces a pod that could not run its trial. A pod whose bigiron, QEMU or kernels are
/// not those of the study fails the job.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bigiron fleet kubernetes DIR --image registry.example/bigiron:1 --claim bigiron-data > job.json")]
pub struct Kubernetes {
    /// The study's folder
    #[arg(value_name = "STUDY", add = complete::study_folder())]
    pub dir: PathBuf,
    /// Container image with bigiron
    #[arg(long, value_name = "IMAGE")]
    pub image: String,
    /// Name of the PersistentVolumeClaim with the folders `study` (the study) and `cache`
    #[arg(long, value_name = "NAME")]
    pub claim: String,
    /// Maximum number of pods that run at the same time
    #[arg(value_parser = whole::<u32>(), allow_negative_numbers = true, long, value_name = "N", default_value_t = 10)]
    pub parallel: u32,
}
