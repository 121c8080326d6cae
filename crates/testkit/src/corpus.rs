//! What fuzzing found, replayed as plain tests.

use std::fs;
use std::path::Path;

/// Runs every file of a target's corpus through the property it was found with.
///
/// # Panics
/// When there is none, and when the property does.
pub fn replay(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let corpus = corpus.join(target);
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
