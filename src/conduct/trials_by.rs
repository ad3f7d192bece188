//! Who runs the trials of a study: this process, or workers.

use bigiron_model::host::Slurm;
use bigiron_model::refusal::Refusal;

/// Who runs a study's trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrialsBy {
    #[default]
    This,
    /// Workers that somebody starts: this process stops before the first trial.
    Workers,
    /// Workers that Slurm starts.
    Slurm(Slurm),
}

impl TrialsBy {
    /// What the options ask for.
    ///
    /// # Errors
    /// Both, or Slurm where it is not.
    pub fn asked(prepare: bool, slurm: Option<Slurm>) -> Result<Self, Refusal> {
        match (prepare, slurm) {
            (false, None) => Ok(Self::This),
            (true, None) => Ok(Self::Workers),
            (true, Some(_)) => Err(Refusal::new(
                "`--prepare` is for workers that you start, `--on slurm` for workers that Slurm starts; omit one",
            )),
            (false, Some(slurm)) => super::slurm::check().map(|()| Self::Slurm(slurm)),
        }
    }
}
