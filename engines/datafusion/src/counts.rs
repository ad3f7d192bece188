//! Bytes that a query scanned and spilled, from the metrics of its executed plan.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Bytes read from the tables' files.
    pub scanned_bytes: usize,
    /// Bytes written to temporary files.
    pub spilled_bytes: usize,
    pub spill_files: usize,
}

impl Counts {
    /// The sums over `plan` and the plans below it, subqueries included.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Counts {
        let mut counts = Counts::default();
        counts.add(plan);
        counts
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(metrics) = plan.metrics() {
            self.scanned_bytes += metrics.sum_by_name("bytes_scanned").map_or(0, |sum| sum.as_usize());
            self.spilled_bytes += metrics.spilled_bytes().unwrap_or(0);
            self.spill_files += metrics.spill_count().unwrap_or(0);
        }
        for child in plan.children() {
            self.add(child);
        }
    }
}
