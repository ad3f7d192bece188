//! `bigiron worker` and `bigiron fleet`.

use super::{output, run};
use crate::cli::{Fleet, FleetEngine, Kubernetes, Worker};
use crate::commands::output::Terminal;
use crate::conduct::worker::{self, WorkerRequest};
use crate::session::Share;
use crate::study::file;
use bigiron_model::refusal::Refusal;
use bigiron_model::store::{Folder, delivery};

/// The longest name of a machine in the names of files.
const NAME_LIMIT: usize = 60;

pub(super) fn work(args: &Worker) -> anyhow::Result<u8> {
    let script = match &args.script {
        Some(path) => run::script_of(&file::find(path)?, path)?,
        None => None,
    };
    let machine = match &args.machine {
        Some(name) => name.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    if machine.is_empty()
        || machine.len() > NAME_LIMIT
        || !machine.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    {
        let message = format!(
            "`{machine}` cannot be the name of a machine; use up to {NAME_LIMIT} letters, digits, `-`, `.` and `_` (`--machine NAME`)"
        );
        return Err(Refusal::new(message).into());
    }
    let share = args.slot.map_or(Share::Claimed, Share::Slot);
    let request =
        WorkerRequest { dir: &args.dir, share, machine: &machine, qemu: args.qemu, script, observer: &Terminal };
    let done = worker::work(&request)?;
    if done == 0 {
        output::note("Nothing to run: the trials already have results");
    }
    Ok(0)
}

pub(super) fn fleet(args: &Fleet) -> anyhow::Result<u8> {
    match &args.engine {
        FleetEngine::Kubernetes(args) => kubernetes(args),
    }
}

fn kubernetes(args: &Kubernetes) -> anyhow::Result<u8> {
    let folder = Folder::open(&args.dir)?;
    delivery::check(folder.plan()).map_err(|why| Refusal::new(format!("Workers cannot run this study: {why}")))?;
    if args.parallel == 0 {
        return Err(Refusal::new("`--parallel` must be 1 or more").into());
    }
    for (option, value) in [("image", &args.image), ("claim", &args.claim)] {
        // Those of images and of names in Kubernetes; the cluster checks the rest.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:@".contains(c);
        if value.is_empty() || !value.chars().all(is_plain) {
            return Err(Refusal::new(format!(
                "`--{option}` cannot be `{value}`; name an existing one in your cluster"
            ))
            .into());
        }
    }
    output::data(manifest(&folder, args)?.trim_end())?;
    Ok(0)
}

/// The Job, as JSON, which Kubernetes reads as it reads YAML and in which every name can be written.
fn manifest(folder: &Folder, args: &Kubernetes) -> anyhow::Result<String> {
    let plan = folder.plan();
    let memory = plan.machine.memory_bytes + (512 << 20);
    let job = serde_json::json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": format!("bigiron-{}", &plan.question_sha256[..12]) },
        "spec": {
            "completionMode": "Indexed",
            "completions": plan.slots.len(),
            "parallelism": args.parallel.min(plan.slots.len() as u32),
            // Pods that a node loses do not count; those that exit with 1 do, each index by itself.
            "backoffLimitPerIndex": 3,
            "maxFailedIndexes": 0,
            "podFailurePolicy": { "rules": [
                { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
                { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [2] } },
            ] },
            "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "worker",
                    "image": args.image,
                    "command": ["bigiron", "worker", "/data/study", "--slot", "$(JOB_COMPLETION_INDEX)", "--machine", "$(NODE_NAME)"],
                    "env": [
                        { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                        { "name": "BIGIRON_CACHE", "value": "/data/cache" },
                    ],
                    "resources": { "requests": { "cpu": plan.clock.host_cpus(plan.machine.cpus).to_string(), "memory": memory.to_string() } },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": args.claim } }],
            } },
        },
    });
    Ok(serde_json::to_string_pretty(&job)?)
}
