//! Runs a user's script with this machine's tools, and checks the messages about wrong outputs.

use super::*;
use bigiron_workload::testing;

/// The page of the workload.
const PAGE: &str = include_str!("../../../../docs/workloads/scripts.md");

fn options(settings: &[(&str, &str)]) -> Result<Options, String> {
    testing::options(&Scripts, settings.iter().copied())
}

/// A machine without a program is refused before, which is tested elsewhere.
#[track_caller]
fn needs_tools() {
    let missing = work_folder::missing(tasks::TASKS.iter().flat_map(|task| task.needs.iter().copied()));
    assert!(missing.is_empty(), "{missing:?} are missing; `scripts/setup test` installs them");
}

fn with_context<T>(settings: &[(&str, &str)], dir: &std::path::Path, act: impl FnOnce(&Spec, &Context<'_>) -> T) -> T {
    let options = options(settings).unwrap();
    let spec = Spec::parse(&options).unwrap();
    act(&spec, &Context { seed: 3, cpus: 1, executable: PathBuf::from("/nonexistent"), ..testing::context(dir) })
}

#[test]
fn every_command_leaves_what_it_must_and_another_result_is_named() {
    needs_tools();
    let dir = tempfile::tempdir().unwrap();
    with_context(&[("users", "1,2")], dir.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let outcome = prepared.run(cx).unwrap();
        prepared.verify(cx).unwrap();
        let declared = spec.metrics();
        assert_eq!(declared.len(), outcome.values.len());
        assert!(declared.iter().all(|m| m.kind.takes(outcome.values[&m.name])), "{:?}", outcome.values);
        assert_eq!(declared.iter().filter(|m| m.primary).count(), 1);
        let best = outcome.values["scripts-per-hour-1"].max(outcome.values["scripts-per-hour-2"]);
        assert_eq!(outcome.values[PRIMARY], best);

        // A wrong result of one command of one user.
        let order = order(spec, cx.seed, 2);
        let n = order.iter().position(|t| t.name == "wc").unwrap();
        let again = || Box::new(PreparedUsers::of(spec, cx).unwrap());
        let out = again().home_of(User { users: 2, user: 2 }).join("w").join(folder(n, order[n])).join("out");
        let right = fs::read_to_string(&out).unwrap();
        fs::write(&out, right.replacen('\n', "9\n", 1)).unwrap();
        let error = again().verify(cx).unwrap_err();
        let says = format!("User 2 of 2, command {} (`wc`): line 1 of its output is `2409` instead of `240`", n + 1);
        assert!(error.is::<WrongData>() && error.to_string() == says, "{error}");
        fs::remove_file(&out).unwrap();
        assert!(again().verify(cx).unwrap_err().to_string().contains("(`wc`) has left nothing"));
    });
}

#[test]
fn a_command_that_fails_ends_its_users_script_and_the_trial() {
    needs_tools();
    let dir = tempfile::tempdir().unwrap();
    with_context(&[("users", "1"), ("without", "cc,make")], dir.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let home = PreparedUsers::of(spec, cx).unwrap().home_of(User { users: 1, user: 1 });
        fs::remove_file(home.join("utmp")).unwrap();
        fs::remove_file(home.join("bin/fibonacci")).unwrap();
        let error = prepared.run(cx).unwrap_err().to_string();
        assert!(
            error.starts_with("The script of one of 1 users ended with status 1; standard error ends:\n"),
            "{error}"
        );
        assert!(error.contains("failed: "), "{error}");
    });
}

#[test]
fn users_have_the_same_commands_in_orders_of_their_own() {
    let spec = Spec::parse(&options(&[]).unwrap()).unwrap();
    let names = |seed, user| order(&spec, seed, user).iter().map(|t| t.name).collect::<Vec<_>>();
    assert_eq!(names(1, 1), names(1, 1));
    assert!(names(1, 1) != names(1, 2) && names(1, 1) != names(2, 1));
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(names(1, 1)), sorted(names(7, 9)));
    assert_eq!(names(1, 1).len() as u32, tasks::TASKS.iter().map(|t| t.times).sum::<u32>());
}

#[test]
fn bad_options_are_refused_with_what_is_right() {
    let refuse = |name, value| options(&[(name, value)]).unwrap_err();
    assert!(
        refuse("users", "0").starts_with("`scripts.users` must be a number of users from 1 to 999, or a rising list")
    );
    for users in ["", "x", "2,1", "1,1", "1,,2", "1000"] {
        refuse("users", users);
    }
    assert_eq!(refuse("without", "cc,mkae"), "`scripts.without` cannot contain `mkae`; did you mean `make`?");
    let every = tasks::TASKS.iter().map(|t| t.name).collect::<Vec<_>>().join(",");
    assert_eq!(refuse("without", &every), "`scripts.without` leaves no command");
    assert!(refuse("limit", "0").starts_with("`scripts.limit` must be a time such as"));
}

#[test]
fn the_page_names_every_command_option_and_metric() {
    for task in tasks::TASKS {
        assert!(PAGE.contains(&format!("| `{}` | {} |", task.name, task.times)), "{}", task.name);
    }
    for option in OPTIONS {
        assert!(PAGE.contains(&format!("| `scripts.{}` |", option.name)), "{}", option.name);
    }
    for metric in Scripts.parse(&options(&[]).unwrap()).unwrap().metrics() {
        assert!(PAGE.contains(&format!("`{}`", metric.name)), "{}", metric.name);
    }
}
