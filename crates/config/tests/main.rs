//! What a configuration says, and what is told of one that is wrong.

mod alerts;
mod broken;
mod console;
mod corpus;
mod directories;
mod fleet;
mod htaccess;
mod limits;
mod listen;
mod load;
mod maps;
mod mounts;
mod overrides;
mod pools;
mod programs;
mod properties;
mod recorder;
mod rewriting;
mod rows;
mod scripts;
mod sharing;
mod shed;
mod sources;
mod written;
