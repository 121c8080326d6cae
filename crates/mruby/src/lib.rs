//! Ruby in a box: a safe wrapper over mruby 3.2.
