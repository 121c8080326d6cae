//! What fuzzing found, replayed as plain tests, and mutated where there is no fuzzer.

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

/// Changed cases that a property is shown, and the variable that says another number.
const MUTATIONS: (u64, &str) = (20_000, "NAGAYA_FUZZ_CASES");

/// Runs what chance makes of a target's corpus through its property: the same each time.
///
/// # Panics
/// When the property does; the case is printed.
pub fn mutate(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(corpus.join(target)).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    let told = std::env::var(MUTATIONS.1)
        .ok()
        .and_then(|it| it.parse().ok());
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for number in 0..told.unwrap_or(MUTATIONS.0) {
        let mut case = seeds[chance.below(seeds.len())].clone();
        for _ in 0..=chance.below(4) {
            chance.change(&mut case, &seeds);
        }
        let held = std::panic::catch_unwind(|| property(&case));
        assert!(held.is_ok(), "case {number}: {case:?}");
    }
}

/// Numbers by chance (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % end.max(1)
    }

    /// Changes, cuts, repeats or joins.
    fn change(&mut self, case: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const ODD: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff];
        let at = self.below(case.len() + 1);
        match self.below(6) {
            0 if at < case.len() => case[at] = ODD[self.below(ODD.len())],
            1 if at < case.len() => case[at] ^= 1 << self.below(8),
            2 => case.truncate(at),
            3 => case.insert(at, ODD[self.below(ODD.len())]),
            4 => {
                let part = case[at..].to_vec();
                let end = at + self.below(part.len() + 1);
                case.truncate(end);
                case.extend(part);
            }
            _ => {
                let other = &seeds[self.below(seeds.len())];
                case.truncate(at);
                case.extend(&other[self.below(other.len() + 1)..]);
            }
        }
    }
}
