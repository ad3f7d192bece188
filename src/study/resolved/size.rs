//! Questions that ask for a time or a precision instead of a number of pairs: what they cannot ask for beside it.

use bigiron_model::clock::Clock;
use bigiron_model::refusal::Refusal;

use crate::study::question::Question;

/// Refuses two answers to one question: how many pairs.
pub(super) fn check(q: &Question, clock: Clock) -> Result<(), Refusal> {
    let Some(key) = q.budget.map(|_| "budget").or(q.precision.map(|_| "precision")) else { return Ok(()) };
    let refuse = |message: String, hint: &str| Err(q.places.refuse(&format!("design.{key}"), message).hint(hint));
    if q.budget.is_some() && q.precision.is_some() {
        return refuse(
            "A budget and a precision both choose the number of pairs".to_owned(),
            "Leave one of them out; with `--budget`, bigiron says which effects its pairs show",
        );
    }
    if q.screening {
        return refuse(
            format!("A screening has four pairs; a {key} chooses another number"),
            "Leave out `--quick` or the other option",
        );
    }
    if q.rebuilds.is_some() {
        return refuse(
            format!("With rebuilt kernels the number of builds decides, which a {key} does not choose"),
            "Leave it out, and choose `--rebuilds N`",
        );
    }
    if q.pairs.is_some() {
        return refuse(
            format!("A {key} chooses the number of pairs, and a number of pairs is given too"),
            "Leave one of them out",
        );
    }
    if q.precision.is_some() && clock == Clock::None {
        return refuse(
            "Without a clock there are no intervals, and so no precision".to_owned(),
            "Use `--clock exact` or `--clock wall`",
        );
    }
    Ok(())
}
