//! A study with causes, cycles and configurations, whose names need escaping in HTML.

use std::collections::BTreeMap;

use bigiron_judge::calls::{Call, Calls};
use bigiron_judge::causes::{Cause, Causes, Profiling};
use bigiron_judge::fixture::{dbsim, micro, plan, records};
use bigiron_judge::judge;
use bigiron_judge::locks::Locks;
use bigiron_judge::modelled::{Agreement, ComponentCycles, Cycles, FunctionCycles, Modelled, ModelledWindow};
use bigiron_judge::stacks::{Frame, Stacks};
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;

use crate::Extras;
use crate::why::Why;

pub(super) const TWO: [&str; 2] = ["debian:6.1", "debian:6.12"];

pub(crate) fn study(effect: f64) -> (Plan, Vec<Record>) {
    let plan = plan(&TWO, 10, vec![micro(), dbsim()]);
    let records = records(&plan, 0.004, |_, workload, metric| match (workload, metric) {
        ("dbsim", "throughput") => 1.0 / effect,
        ("micro", _) => effect,
        _ => 1.0,
    });
    (plan, records)
}

pub(crate) fn configs() -> Extras {
    Extras {
        configs: BTreeMap::from([
            (TWO[0].to_owned(), "CONFIG_HZ=250\nCONFIG_OLD=y\nCONFIG_TEXT=\"<&>\"\n".to_owned()),
            (TWO[1].to_owned(), "CONFIG_HZ=1000\nCONFIG_NEW=m\n".to_owned()),
        ]),
        why: why(),
        counters: vec![crate::counters::tests::counts()],
        all_counters: false,
    }
}

fn modelled(agreement: Agreement, b: [f64; 2]) -> Modelled {
    let cycles = |processor, b| Cycles {
        processor,
        a: 600.0,
        b,
        components: vec![ComponentCycles { component: "data", a: 600.0, b }],
    };
    let functions = vec![FunctionCycles { function: "user: <&>".to_owned(), a: 10.0, b: 60.0, mostly: "data" }];
    Modelled { processors: vec![cycles("rome-like", b[0]), cycles("pessimistic", b[1])], functions, agreement }
}

/// Causes of one line, with names that need escaping in HTML.
pub(crate) fn why() -> Why {
    let cause = |name: &str, a, b| Cause { name: name.to_owned(), formerly: None, a, b, se: None };
    let renamed = Cause { formerly: Some("mas_next_entry".to_owned()), ..cause("mas_next_slot", 100.0, 70.0) };
    let causes = Causes {
        comparison: 0,
        workload: "micro".to_owned(),
        metric: "fork-exit".to_owned(),
        window: "fork-exit".to_owned(),
        pairs: 1,
        cpus: 1.0,
        a: 1000.0,
        b: 1050.0,
        causes: vec![cause("user: <&>", 10.0, 75.0), renamed, cause("waiting", 5.0, 20.0)],
        listed: 3,
        gone: 0.0,
        new: 0.0,
        sampled: None,
        modelled: Some(modelled(Agreement::Depends, [650.0, 590.0])),
    };
    let looking = Profiling { trials: 2, identical: 2, slow_down: Some(1.5), sampled: None };
    let called = BTreeMap::from([("user: <&>".to_owned(), Frame { a: 10.0, b: 75.0, called: BTreeMap::new() })]);
    let stacks = Stacks {
        comparison: 0,
        workload: "micro".to_owned(),
        metric: "fork-exit".to_owned(),
        root: Frame { a: 10.0, b: 75.0, called },
    };
    let calls = Calls {
        comparison: 0,
        workload: "micro".to_owned(),
        metric: "fork-exit".to_owned(),
        calls: vec![Call { name: "clone".to_owned(), a: 1.0, b: 1.0 }],
    };
    let missing = vec!["Trial 3 came to <nothing>".to_owned()];
    let (plan, records, waiting) = bigiron_judge::fixture::contended();
    let locks = Locks::new(&plan, &records, &judge(&plan, &records), &waiting);
    let window = |metric: &str, b, of: Modelled| ModelledWindow {
        comparison: 0,
        workload: "micro".to_owned(),
        metric: metric.to_owned(),
        pairs: 1,
        a: 1000.0,
        b,
        of: Modelled { functions: Vec::new(), ..of },
    };
    let modelled = vec![
        window("fork-exit", 1050.0, modelled(Agreement::Depends, [650.0, 590.0])),
        window("pipe-rtt", 1001.0, modelled(Agreement::TooSmall, [601.0, 599.0])),
    ];
    let (causes, calls, stacks) = (vec![causes], vec![calls], vec![stacks]);
    Why { looking: Some(looking), causes, modelled, calls, stacks, locks, missing }
}
