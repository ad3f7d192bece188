//! The client and a real server.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::testing::Running;
use super::*;
use crate::database::SqlValue;
use crate::server::Listen;
use bigiron_service::mariadb;

fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}

#[test]
fn statements_values_and_errors() {
    let other = Ipv4Addr::new(10, 1, 2, 3);
    let running = Running::start(Listen::Network { address: Ipv4Addr::new(127, 0, 0, 2), clients: [other, other] });
    let mut session = running.session();
    let accounts = session.query("SELECT Host FROM mysql.global_priv ORDER BY Host").unwrap();
    assert_eq!(accounts, ["10.1.2.3", "127.0.0.1", "127.0.0.2", "localhost"].map(|host| [text(host)]));
    let of_other = session.query("SHOW GRANTS FOR 'bigiron'@'10.1.2.3'").unwrap();
    let [[SqlValue::Text(grant)]] = &of_other.iter().map(|row| [row[0].clone()]).collect::<Vec<_>>()[..] else {
        panic!("{of_other:?}")
    };
    assert!(grant.starts_with("GRANT ALL PRIVILEGES ON *.* TO") && grant.contains("IDENTIFIED BY PASSWORD"), "{grant}");
    assert_eq!(
        session.query("SELECT 1, -7, NULL, 'a''b', 2 || 3").unwrap(),
        [[SqlValue::Integer(1), SqlValue::Integer(-7), SqlValue::Null, text("a'b"), text("23"),]]
    );
    // Several statements, and the rows of those in between.
    session
        .run("CREATE TABLE t (x integer, y bigint, s varchar(10)); SELECT 5; INSERT INTO t VALUES (1, 2, 'ü')")
        .unwrap();
    assert_eq!(
        session.query("SELECT sum(x), sum(y), avg(x), s FROM t").unwrap(),
        [[SqlValue::Integer(1), SqlValue::Integer(2), text("1.0000"), text("ü"),]]
    );
    assert_eq!(session.query("INSERT INTO t VALUES (2, 3, NULL)").unwrap(), Vec::<Vec<SqlValue>>::new());
    let refused = session.run("SELECT 1; SELECT nothing; DROP TABLE t").unwrap_err();
    assert!(matches!(&refused, MariaError::Server { code: 1054, state, .. } if state == "42S22"), "{refused}");
    assert_eq!(refused.to_string(), "Unknown column 'nothing' in 'SELECT' (error 1054, 42S22)");
    let long = session.run("INSERT INTO t VALUES (1, 1, 'eleven bytes')").unwrap_err();
    assert!(long.to_string().contains("Data too long"), "values are refused and not cut: {long}");
    // The session is still of use.
    assert_eq!(session.query("SELECT count(*) FROM t").unwrap(), [[SqlValue::Integer(2)]]);

    let mut load = session.load("LOAD DATA LOCAL INFILE 'x' INTO TABLE t").unwrap();
    load.write(b"").unwrap();
    load.write(b"4\t5\tsix\n7\t\\N\t").unwrap();
    load.write(b"eight\nnine\t1\tten\n").unwrap();
    assert_eq!(load.finish().unwrap(), Taken { rows: 3, warnings: 1 });
    let loaded = session.query("SELECT x, y, s FROM t WHERE x = 7").unwrap();
    assert_eq!(loaded, [[SqlValue::Integer(7), SqlValue::Null, text("eight")]]);
    assert!(matches!(running.session().load("SELECT 1"), Err(MariaError::Protocol(_))));

    // Over TCP with the password, and not without.
    let at = running.server.server().tcp().unwrap();
    let address = SocketAddrV4::new(at.address, at.port);
    let password = mariadb::password(running.place.path()).unwrap();
    let mut other = Connection::connect(&Place::Tcp { address, password }).unwrap();
    assert_eq!(other.query("SELECT count(*) FROM t").unwrap(), [[SqlValue::Integer(5)]]);
    for password in ["", "wrong"] {
        let denied = Connection::connect(&Place::Tcp { address, password: password.to_owned() }).err().unwrap();
        assert!(denied.to_string().contains("Access denied for user 'bigiron'@'127.0.0.1'"), "{denied}");
    }

    // Two sessions in a deadlock: one of them is told to try again.
    session
        .run("CREATE TABLE d (k integer PRIMARY KEY, n integer) ENGINE=InnoDB; INSERT INTO d VALUES (1, 0), (2, 0)")
        .unwrap();
    session.run("BEGIN; UPDATE d SET n = 1 WHERE k = 1").unwrap();
    other.run("BEGIN; UPDATE d SET n = 2 WHERE k = 2").unwrap();
    let waits = std::thread::spawn(move || other.run("UPDATE d SET n = 2 WHERE k = 1; COMMIT"));
    let mine = session.run("UPDATE d SET n = 1 WHERE k = 2; COMMIT");
    let both = [mine, waits.join().unwrap()];
    assert_eq!(both.iter().filter(|ended| ended.is_ok()).count(), 1, "{both:?}");
    assert!(both.iter().filter_map(|ended| ended.as_ref().err()).all(MariaError::is_retry), "{both:?}");

    running.server.kill();
    assert!(matches!(session.run("SELECT 1"), Err(MariaError::Closed(_))));
    let gone = Connection::connect(&Place::Socket(running.place.path().join(mariadb::SOCKET))).err().unwrap();
    assert!(gone.to_string().starts_with("Cannot connect to MariaDB at `"), "{gone}");
}
