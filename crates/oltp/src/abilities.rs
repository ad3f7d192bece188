//! Optional features that a server with PostgreSQL's protocol may lack.
//!
//! Invariant: nothing is required here; missing features are reported, and the figures that depend on them are omitted.

use super::counters::VIEWS;
use super::sql::PLANNER;
use bigiron_sql::catalogue;
use bigiron_sql::database::Database;
use bigiron_sql::pg::{Connection, PgError};

/// The missing features, each with the server's message, in words for the record. Needs a connection that is used for nothing
/// else.
pub fn missing(session: &mut Connection) -> Vec<String> {
    let mut missing = Vec::new();
    for setting in PLANNER {
        note(session.run(setting), setting, &mut missing);
    }
    for name in catalogue::POSTGRES.of_durability() {
        note(session.run(&format!("SHOW {name}")), &format!("SHOW {name}"), &mut missing);
    }
    note(session.run("SELECT name, setting, boot_val FROM pg_settings LIMIT 0"), "pg_settings", &mut missing);
    let waits = "SELECT wait_event_type, wait_event, backend_type FROM pg_stat_activity LIMIT 0";
    note(session.run(waits), "pg_stat_activity, the sessions' waits", &mut missing);
    // Views of other versions are not reported: a version has one or the other.
    let listed = session.rows("SELECT viewname FROM pg_catalog.pg_views WHERE schemaname = 'pg_catalog'");
    let listed = format!("{:?}", listed.unwrap_or_default());
    for (name, sql) in VIEWS {
        let view = format!("pg_stat_{name}");
        let is_of_all = ["database", "bgwriter"].contains(&name);
        if is_of_all || listed.contains(&format!("{view:?}")) {
            note(
                session.run(&format!("SELECT 1 FROM ({sql}) s, jsonb_each_text(to_jsonb(s)) LIMIT 0")),
                &view,
                &mut missing,
            );
        }
    }
    missing
}

fn note(tried: Result<(), PgError>, what: &str, missing: &mut Vec<String>) {
    if let Err(PgError::Server(why)) = tried {
        missing.push(format!("{what} ({})", why.text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Marks, conditions};
    use super::super::driver::{DriveTarget, fixture};
    use super::super::scale::Scale;
    use super::super::trial::{self, TrialContext};
    use super::super::trial_database::{Procedures, load_marked};
    use super::*;
    use bigiron_sql::database::SqlValue;
    use bigiron_sql::server::Listen;
    use bigiron_sql::server::Transport;
    use bigiron_sql::server::{cluster, testing};

    /// A role without a language for procedures, temporary tables and a view of the server, on tables that do not accept `COPY`:
    /// PostgreSQL refuses it on tables with row-level security, which a trigger enables for each.
    const MEAGRE: &str = "
        CREATE ROLE meagre LOGIN; GRANT CREATE ON SCHEMA public TO meagre;
        CREATE FUNCTION guard() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE made record; BEGIN
            FOR made IN SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
                EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', made.object_identity);
                EXECUTE format('CREATE POLICY all_of_it ON %s USING (true) WITH CHECK (true)', made.object_identity);
            END LOOP; END $$;
        CREATE EVENT TRIGGER guard ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION guard();
        REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC;
        REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC;
        REVOKE SELECT ON pg_stat_activity, pg_stat_database, pg_settings FROM PUBLIC";

    #[test]
    fn a_server_that_lacks_much_is_loaded_driven_and_checked_and_what_it_lacks_is_told() {
        let server = testing::start(Listen::Socket, &[("fsync", "off"), ("full_page_writes", "off")]);
        let mut url = cluster::url(&server.cluster, Transport::Unix).unwrap();
        let mut owner = Connection::connect(&url).unwrap();
        assert_eq!(missing(&mut owner), [""; 0]);
        owner.run(MEAGRE).unwrap();
        url.user = "meagre".to_owned();
        let scale = Scale { warehouses: 1 };
        let refused = load_marked(&url, scale, Procedures::Needed, &|_, _, _| ()).unwrap_err();
        assert!(format!("{refused:#}").contains("--set mode=pipelined"), "{refused:#}");
        let tables = owner.rows("SELECT count(*) FROM pg_tables WHERE tablename = 'item'").unwrap();
        assert_eq!(tables, [[SqlValue::Integer(0)]], "it is refused before anything is loaded");
        let mut unavailable = load_marked(&url, scale, Procedures::Wanted, &|_, _, _| ()).unwrap();
        unavailable.extend(missing(&mut Connection::connect(&url).unwrap()));
        let all = unavailable.join("; ");
        for what in
            ["COPY with FREEZE (", "COPY in binary (", "COPY (", "PL/pgSQL (", "pg_settings (", "pg_stat_activity,"]
        {
            assert!(all.contains(what), "no `{what}` in {all}");
        }
        let mut session = Connection::connect(&url).unwrap();
        assert!(conditions(&mut session, true).unwrap().passed());
        assert!(Marks::take(&mut session).unwrap().payments > 0);
        let dir = tempfile::tempdir().unwrap();
        let cx = TrialContext { unavailable: &unavailable, ..fixture::context(dir.path()) };
        let target = DriveTarget::Postgres(&url);
        for mode in ["pipelined", "round-trips"] {
            let job = fixture::job(&[("mode", mode), ("length", "300"), ("ramp", "20"), ("connections", "4")]);
            let outcome = trial::run(&job, &target, &cx).unwrap();
            trial::verify(&target, &cx).unwrap();
            assert!(outcome.facts["not-available"].starts_with("not available on this server: COPY"), "{mode}");
            assert!(outcome.facts["agreement"].contains("by the database's"));
        }
    }
}
