//! DataFusion with the tables registered once. All other settings are those of DataFusion's own command line.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use url::Url;

use crate::counts::Counts;
use crate::table::TABLES;
use crate::value;

/// Memory consumers that an error names when memory is exhausted.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

pub struct Session(SessionContext);

impl Session {
    /// `memory` is in bytes. Each query has `partitions` partitions, and spills into `temporary`.
    pub fn new(memory: usize, partitions: usize, temporary: &Path) -> Result<Session> {
        // Each operator that can spill gets the same share of memory. In a greedy pool, an operator's share, and so whether it spills, depends on
        // which thread asks first.
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory), NAMED_CONSUMERS);
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![temporary.to_owned()]))
            // The file system is the limit.
            .with_max_temp_directory_size(u64::MAX);
        let runtime =
            RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(disk).build_arc()?;
        let config = SessionConfig::new().with_target_partitions(partitions).with_information_schema(true);
        Ok(Session(SessionContext::new_with_config_rt(config, runtime)))
    }

    /// Registers the tables in `folder`; also collects the files' statistics.
    pub async fn register_tables(&self, folder: &Path) -> Result<()> {
        for table in &TABLES {
            let path = folder.join(format!("{}.parquet", table.name));
            // As a URL: DataFusion takes a path with `[`, `*` or `?` for a pattern.
            let url = Url::from_file_path(&path).map_err(|()| anyhow!("{} is not absolute", path.display()))?;
            let location = url.as_str().replace('\'', "''");
            let statement = format!("CREATE EXTERNAL TABLE {} STORED AS PARQUET LOCATION '{location}'", table.name);
            self.0.sql(&statement).await.with_context(|| format!("Cannot read {}", path.display()))?;
        }
        Ok(())
    }

    /// The answer's rows as JSON arrays, with commas between them.
    pub async fn query(&self, sql: &str) -> Result<(Vec<u8>, Counts)> {
        let frame = self.0.sql(sql).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let mut stream = execute_stream(Arc::clone(&plan), context)?;
        let (mut rows, mut comma) = (Vec::new(), false);
        while let Some(batch) = stream.try_next().await? {
            value::append_rows(&batch, &mut comma, &mut rows)?;
        }
        Ok((rows, Counts::of(&plan)))
    }

    /// Sets all options, or none if one is refused.
    pub async fn set(&self, options: &BTreeMap<String, String>) -> Result<()> {
        let mut trial = self.0.copied_config().options().as_ref().clone();
        for (name, value) in options {
            if name.starts_with("datafusion.runtime.") {
                return Err(anyhow!("`{name}` cannot be set; pass `--memory` and `--temporary` to `serve` instead"));
            }
            trial.set(name, value)?;
        }
        for (variable, value) in options.clone() {
            let statement = Statement::SetVariable(SetVariable { variable, value });
            self.0.execute_logical_plan(LogicalPlan::Statement(statement)).await?;
        }
        Ok(())
    }
}
