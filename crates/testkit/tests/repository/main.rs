//! The repository itself: the rules of ARCHITECTURE.md, and the scripts that tests are run with.

mod layers;
mod scripts;
mod tree;
