//! Builds small trees with this machine's tools, if it has them, and checks the messages about wrong ones.

use std::fs;

use super::*;
use bigiron_workload::{RunsOn, testing};

/// The page of the workload.
const PAGE: &str = include_str!("../../../../docs/workloads/build.md");

fn options(settings: &[(&str, &str)]) -> Result<Options, String> {
    testing::options(&Build, settings.iter().copied())
}

fn with_context<T>(settings: &[(&str, &str)], dir: &Path, act: impl FnOnce(&Spec, &Context<'_>) -> T) -> T {
    let options = options(settings).unwrap();
    let spec = Spec::parse(&options).unwrap();
    act(&spec, &Context { seed: 3, executable: PathBuf::from("/nonexistent"), ..testing::context(dir) })
}

/// A machine without a compiler is refused before, which is tested elsewhere.
#[track_caller]
fn needs_tools() {
    let missing = work_folder::missing([("make", "make"), ("cc", "gcc"), ("ld", "binutils")]);
    assert!(missing.is_empty(), "{missing:?} are missing; `scripts/setup test` installs them");
}

#[test]
fn a_generated_tree_is_built_under_every_load_and_its_program_prints_what_was_worked_out() {
    needs_tools();
    let dir = tempfile::tempdir().unwrap();
    let settings = [("files", "2"), ("functions", "6"), ("loads", "half,maximal"), ("warmup", "0")];
    with_context(&settings, dir.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let outcome = prepared.run(cx).unwrap();
        prepared.verify(cx).unwrap();
        let declared = spec.metrics();
        assert_eq!(declared.iter().filter(|m| m.primary).map(|m| m.name.as_str()).collect::<Vec<_>>(), [PRIMARY]);
        assert_eq!(declared.len(), outcome.values.len());
        assert!(declared.iter().all(|m| m.kind.takes(outcome.values[&m.name])), "{:?}", outcome.values);
        let (half, maximal) = (outcome.values["elapsed-half"], outcome.values["elapsed-maximal"]);
        assert!((outcome.values[PRIMARY] / (half * maximal).sqrt() - 1.0).abs() < 1e-9);
        assert_eq!(
            (outcome.facts["jobs"].as_str(), outcome.facts["builds-checked"].as_str()),
            ("half=1 maximal=all", "2")
        );

        // A compiler that gets a number wrong, and a program that says nothing.
        let again = || Box::new(PreparedTree::of(spec, cx).unwrap());
        let printed = again().place.dir.join(PRINTED);
        let right = fs::read_to_string(&printed).unwrap();
        fs::write(&printed, right.replacen("sum ", "sum 1", 1)).unwrap();
        let error = again().verify(cx).unwrap_err();
        assert!(error.is::<WrongData>() && error.to_string().starts_with("The program prints `2 units, sum 1"));
        fs::write(&printed, right.lines().next().unwrap().to_owned() + "\n").unwrap();
        assert_eq!(again().verify(cx).unwrap_err().to_string(), "Of 2 programs, 1 printed anything");
    });
}

#[test]
fn a_tree_of_the_users_is_built_in_a_copy_and_checked_by_his_line() {
    needs_tools();
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let makefile = "out: in\n\tcp in out\nbroken:\n\techo no >&2; exit 3\nclean:\n\trm -f out\n";
    fs::write(own.path().join("Makefile"), makefile).unwrap();
    let tree = own.path().display().to_string();
    let settings =
        [("tree", tree.as_str()), ("prepare", "echo hello > in"), ("check", "grep -q hello out"), ("loads", "optimal")];
    with_context(&settings, dir.path(), |spec, cx| {
        let mut prepared = spec.prepare(cx).unwrap();
        let outcome = prepared.run(cx).unwrap();
        prepared.verify(cx).unwrap();
        assert_eq!((outcome.facts["jobs"].as_str(), outcome.facts["builds-checked"].as_str()), ("optimal=8", "2"));
        assert!(!own.path().join("in").exists() && !own.path().join("out").exists());
    });
    for (more, says) in [
        (("target", "broken"), "warmup-1: `exec make -s -j8 broken` ended with status 2; standard error ends:\nno\n"),
        (("check", "grep -q nothing out"), "warmup-1-check: `grep -q nothing out` ended with status 1"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        with_context(&[&settings[..], &[more]].concat(), dir.path(), |spec, cx| {
            let error = spec.prepare(cx).unwrap().run(cx).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        });
    }
}

#[test]
fn a_larger_tree_begins_with_a_smaller_one_and_no_program_runs_for_long() {
    let files = |n| Tree::new(n, 8).files();
    let (small, large) = (files(4), files(9));
    assert!(small.iter().filter(|(path, _)| path != "main.c").all(|file| large.contains(file)));
    assert_eq!(files(4), small);
    assert_ne!(Tree::new(4, 8).prints(), Tree::new(5, 8).prints());
    let lines: usize =
        small.iter().filter(|(path, _)| path.ends_with("_003.c")).map(|(_, text)| text.lines().count()).sum();
    assert!(lines > 150, "{lines}");
    // Steps are bounded for each function: this ends, and soon.
    Tree::new(60, 12).prints();
}

#[test]
fn a_tree_that_cannot_be_built_is_refused_before_anything_boots() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().display().to_string();
    let arm = |tree: &str| Build.parse(&options(&[("tree", tree)]).unwrap()).unwrap().check_arm(RunsOn::Here);
    assert_eq!(arm(&tree), Err(format!("`build.tree` must be a folder with a Makefile, and `{tree}` has none")));
    assert!(arm("/nonexistent").unwrap_err().contains("there is no folder `/nonexistent`"));
    assert!(Build.embed("tree", &tree, RunsOn::Here).is_err());
    fs::write(dir.path().join("makefile"), "all:\n").unwrap();
    assert_eq!(
        Build.embed("tree", &format!("{tree}/."), RunsOn::Here),
        Ok(fs::canonicalize(&tree).unwrap().display().to_string())
    );
    assert_eq!(Build.embed("tree", "/nonexistent", RunsOn::Elsewhere), Ok("/nonexistent".to_owned()));
    assert!(Build.embed("tree", "src", RunsOn::Elsewhere).unwrap_err().contains("must be an absolute path"));
    assert_eq!(Build.embed("tree", GENERATED, RunsOn::Here), Ok(GENERATED.to_owned()));
}

#[test]
fn bad_options_are_refused_with_what_is_right() {
    let refuse = |name, value| options(&[(name, value)]).unwrap_err();
    assert_eq!(refuse("files", "0"), "`build.files` must be a number from 1 to 999, not `0` (or `auto`)");
    assert!(
        refuse("loads", "half,full")
            .starts_with("`build.loads` cannot contain `full`; it can contain `half`, `optimal` or `maximal`")
    );
    assert_eq!(refuse("loads", "half,half"), "`build.loads` has `half` twice");
    assert_eq!(refuse("target", "a; b"), "`build.target` must be a target of the tree's Makefile, not `a; b`");
    assert!(refuse("check", "true").contains("need your own tree"));
    for (name, value) in [
        ("functions", "0"),
        ("optimal", "0"),
        ("runs", "x"),
        ("limit", "0"),
        ("clean", ""),
        ("disk", "much"),
        ("roots", "a"),
    ] {
        refuse(name, value);
    }
}

#[test]
fn loads_go_by_the_cpus() {
    let spec = Spec::parse(&options(&[]).unwrap()).unwrap();
    let jobs = |cpus| [Load::Half, Load::Optimal, Load::Maximal].map(|l| spec.jobs(l, cpus));
    assert_eq!((jobs(1), jobs(8)), ([Some(1), Some(4), None], [Some(4), Some(32), None]));
    let all = Spec::parse(&options(&[("loads", "maximal")]).unwrap()).unwrap();
    assert!(all.memory_bytes() > 4 << 30 && spec.memory_bytes() < 512 << 20);
}

#[test]
fn the_page_names_every_option_and_metric() {
    for option in OPTIONS {
        assert!(PAGE.contains(&format!("| `build.{}` |", option.name)), "{}", option.name);
    }
    for (name, ..) in OF_LOAD {
        assert!(PAGE.contains(&format!("`{name}-LOAD`")), "{name}");
    }
}
