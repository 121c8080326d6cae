//! What the measured server spends meanwhile: its whole process tree, and the machine around it,
//! read from /proc, /sys and control groups.

mod reading;

pub use reading::*;
