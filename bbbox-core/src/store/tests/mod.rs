//! The store on real files, with a real second process.

mod box_log;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use super::*;
use crate::error::ErrorKind;

const OWN: Access<'static> = Access::Own { command: "bbbox serve" };

fn count(store: &Store) -> i64 {
    store.read(|c| Ok(c.query_row("SELECT count(*) FROM things", [], |r| r.get(0))?)).unwrap()
}

fn add(store: &Store, things: &str) -> Result<()> {
    store.write(|tx| {
        tx.execute_batch("CREATE TABLE IF NOT EXISTS things(name TEXT NOT NULL UNIQUE)")?;
        for thing in things.split(' ') {
            tx.execute("INSERT INTO things VALUES(?1)", [thing])?;
        }
        Ok(())
    })
}

#[test]
fn a_transaction_happens_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::memory().unwrap(), Store::open(folder.path(), OWN).unwrap()] {
        add(&store, "a b").unwrap();
        assert_eq!(add(&store, "c d a").unwrap_err().kind(), ErrorKind::Failed);
        assert_eq!(count(&store), 2);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.write(|tx| -> Result<()> {
                tx.execute("INSERT INTO things VALUES('x')", [])?;
                panic!("a bug");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(count(&store), 2);
        add(&store, "c").unwrap();
        assert_eq!(count(&store), 3);
    }
}

#[test]
fn using_the_store_inside_its_own_transaction_is_a_panic_and_no_hang() {
    let store = Store::memory().unwrap();
    let nested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.write(|_| add(&store, "a"))));
    assert!(nested.is_err());
    add(&store, "a").unwrap();
}

#[test]
fn what_was_written_is_there_for_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    add(&Store::open(folder.path(), OWN).unwrap(), "a").unwrap();
    assert_eq!(count(&Store::open(folder.path(), OWN).unwrap()), 1);
}

#[test]
fn a_reader_reads_beside_the_owner_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let owner = Store::open(folder.path(), OWN).unwrap();
    add(&owner, "a").unwrap();
    let reader = Store::open(folder.path(), Access::Read).unwrap();
    assert_eq!(count(&reader), 1);
    add(&owner, "b").unwrap();
    assert_eq!(count(&reader), 2);
    let error = add(&reader, "c").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let error = reader.read(|c| Ok(c.execute("DELETE FROM things", [])?)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(owner);
    assert_eq!(count(&reader), 2);
    // A reader holds no lock.
    Store::open(folder.path(), OWN).unwrap();
}

#[test]
fn with_nothing_there_yet_a_reader_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = Store::open(folder.path(), Access::Read).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone);
    assert!(error.to_string().contains("no bb-box data"), "{error}");
    assert!(error.how_to_fix().is_some(), "{error:?}");
    assert!(!folder.path().join(DATABASE).exists());
}

#[test]
fn a_newer_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), OWN).unwrap());
    let version = |set: Option<i64>| -> i64 {
        let connection = Connection::open(folder.path().join(DATABASE)).unwrap();
        if let Some(set) = set {
            connection.pragma_update(None, "user_version", set).unwrap();
        }
        connection.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap()
    };
    let mine = version(None);
    version(Some(mine + 3));
    for access in [OWN, Access::Read] {
        let error = Store::open(folder.path(), access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("a newer bbbox: it is 3 versions ahead"), "{error}");
        assert!(error.how_to_fix().unwrap().contains("newer bbbox"), "{error:?}");
    }
    assert_eq!(version(None), mine + 3);
    version(Some(mine - 1));
    let error = Store::open(folder.path(), Access::Read).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

type Harm = fn(&Path);

/// What may have become of a database, and what is said of it then.
const DAMAGE: [(&str, Harm); 3] = [
    ("garbage", |file| std::fs::write(file, "this is no database, only words".repeat(99)).unwrap()),
    ("half of it", |file| {
        let whole = std::fs::read(file).unwrap();
        std::fs::write(file, [&whole[..100], &vec![0x5a; whole.len() - 100][..]].concat()).unwrap();
    }),
    ("without its tables", |file| {
        let connection = Connection::open(file).unwrap();
        let names: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
            .unwrap()
            .query_map([], |r| r.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        names.iter().for_each(|name| connection.execute_batch(&format!("DROP TABLE {name}")).unwrap());
    }),
];

/// A folder with records and history, closed: all of it is in the two files.
fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), OWN).unwrap();
    store.box_log().append(&box_log::event(1, 0, "ready"));
    folder
}

fn says_what_to_do(error: &Error, file: &Path, fix: &str) {
    assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
    let named = error.context().iter().filter(|(name, value)| name == "file" && Path::new(value) == file);
    assert_eq!(named.count(), 1, "{error:?}");
    let said = error.how_to_fix().unwrap_or_default();
    assert!(said.contains(&format!("a copy of {}", file.display())) && said.contains(fix), "{said}");
}

#[test]
fn a_damaged_database_is_named_with_what_to_do() {
    let emptied: (&str, Harm) = ("emptied", |file| std::fs::write(file, "").unwrap());
    for (how, harm) in DAMAGE.into_iter().chain([emptied]) {
        for access in [OWN, Access::Read] {
            let folder = filled();
            let file = folder.path().join(DATABASE);
            harm(&file);
            let used = Store::open(folder.path(), access)
                .and_then(|store| store.read(|c| crate::records::all(c).map(drop)));
            let error = used.expect_err(how);
            says_what_to_do(&error, &file, "`bbbox sweep`");
        }
    }
}

#[test]
fn a_record_that_cannot_be_read_is_damage_of_its_file() {
    let folder = filled();
    let store = Store::open(folder.path(), OWN).unwrap();
    let spoil = "INSERT INTO boxes (id, state, record) VALUES ('bx000000000001', 'ready', '{}')";
    store.write(|tx| Ok(tx.execute(spoil, [])?)).unwrap();
    let error = store.read(|c| crate::records::all(c).map(drop)).unwrap_err();
    says_what_to_do(&error, &folder.path().join(DATABASE), "`bbbox install-id --set ID`");
}

#[test]
fn damaged_history_is_named_and_stops_nothing_else() {
    for (how, harm) in DAMAGE {
        let folder = filled();
        let file = folder.path().join(super::box_log::FILE);
        harm(&file);
        for access in [Access::Read, OWN] {
            if how == "without its tables" && matches!(access, Access::Own { .. }) {
                continue; // An owner makes them anew.
            }
            let store = Store::open(folder.path(), access).expect(how);
            store.read(|c| crate::records::all(c).map(drop)).unwrap();
            let error = store.box_log().read(&box_log::box_id(1), None, 9).expect_err(how);
            says_what_to_do(&error, &file, "only what happened to boxes so far is lost");
        }
    }
}

#[test]
fn a_database_that_was_just_being_made_is_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(DATABASE), "").unwrap();
    assert_eq!(Store::open(folder.path(), Access::Read).unwrap_err().kind(), ErrorKind::Gone);
    add(&Store::open(folder.path(), OWN).unwrap(), "a").unwrap();
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(DATABASE);
    std::fs::create_dir(&file).unwrap();
    for access in [OWN, Access::Read] {
        let error = Store::open(folder.path(), access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let all = format!("{error:?}");
        assert!(all.contains(&file.display().to_string()) && error.how_to_fix().is_some(), "{all}");
    }
}

#[test]
fn a_full_disk_refuses_the_change_and_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), OWN).unwrap();
    add(&store, "a").unwrap();
    let pages = |most: i64| {
        store.write(|tx| {
            Ok(tx.query_row(&format!("PRAGMA max_page_count = {most}"), [], |r| r.get::<_, i64>(0))?)
        })
    };
    let now = pages(1).unwrap();
    let many =
        |n: usize| (0..n).map(|i| format!("thing-{i}-{}", "x".repeat(999))).collect::<Vec<_>>().join(" ");
    let error = add(&store, &many(99)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let fix = error.how_to_fix().unwrap();
    assert!(fix.starts_with("free space in ") && fix.contains(&folder.path().display().to_string()), "{fix}");
    assert_eq!(count(&store), 1);
    pages(now + 9999).unwrap();
    add(&store, &many(99)).unwrap();
    assert_eq!(count(&store), 100);
}

#[cfg(unix)]
#[test]
fn only_its_owner_reads_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new/data");
    let store = Store::open(&dir, OWN).unwrap();
    add(&store, "a").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in std::fs::read_dir(&dir).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_second_owner_in_this_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = Store::open(folder.path(), OWN).unwrap();
    let error = Store::open(folder.path(), Access::Own { command: "bbbox sweep" }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let holder = format!("in use by process {} (bbbox serve)", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    drop(first);
    Store::open(folder.path(), OWN).unwrap();
}

/// Not a test: the second process of the one below.
#[test]
#[ignore = "it is run by a_killed_owner_blocks_nobody"]
fn own_until_killed() {
    let Ok(dir) = std::env::var("BBBOX_TEST_FOLDER") else { return };
    let store = Store::open(Path::new(&dir), Access::Own { command: "another bbbox" }).unwrap();
    add(&store, "a b").unwrap();
    println!("owned");
    std::io::stdin().lines().next();
}

fn owner(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::own_until_killed", "--ignored", "--nocapture"])
        .env("BBBOX_TEST_FOLDER", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    assert!(said.into_iter().any(|line| line.contains("owned")), "the second process did not get the folder");
    child
}

#[test]
fn a_killed_owner_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = owner(folder.path());
    let error = Store::open(folder.path(), OWN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let holder = format!("process {} (another bbbox)", child.id());
    assert!(error.to_string().contains(&holder), "{error}");
    assert_eq!(count(&Store::open(folder.path(), Access::Read).unwrap()), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    // What a killed owner wrote is in the write-ahead log still, also for a reader.
    assert_eq!(count(&Store::open(folder.path(), Access::Read).unwrap()), 2);
    assert_eq!(count(&Store::open(folder.path(), OWN).unwrap()), 2);
}

#[test]
fn many_threads_write_and_read_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), OWN).unwrap());
    add(&store, "first").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..25 {
                    let before = count(store);
                    add(store, &format!("{thread}-{n}")).unwrap();
                    assert!(count(store) > before);
                }
            });
        }
    });
    assert_eq!(count(&store), 101);
}
