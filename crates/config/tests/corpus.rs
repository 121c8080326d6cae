//! Replays the fuzzing corpus through the property it was found with.

use crate::properties;
use std::path::Path;

#[test]
fn config() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let mut replayed = 0;
    for file in std::fs::read_dir(&corpus).unwrap() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        properties::config(&std::fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "the corpus is empty");
}
