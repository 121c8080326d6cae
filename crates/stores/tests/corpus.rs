//! Replays every file of the fuzzing corpora through the property it was found with.

use crate::properties;
use std::{fs, path::Path};

fn replay(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files =
        fs::read_dir(&corpus).unwrap_or_else(|error| panic!("read {}: {error}", corpus.display()));
    let mut replayed = 0;
    for file in files {
        let path = file.expect("list a corpus").path();
        let bytes =
            fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
        println!("{}", path.display());
        property(&bytes);
        replayed += 1;
    }
    assert!(replayed > 0, "the corpus of {target} is empty");
}

#[test]
fn memcached_reply() {
    replay("memcached_reply", properties::memcached_reply);
}

#[test]
fn redis_reply() {
    replay("redis_reply", properties::redis_reply);
}

#[test]
fn mysql_reply() {
    replay("mysql_reply", properties::mysql_reply);
}
