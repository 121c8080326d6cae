//! What rows of directories were looked for.

use control::Directory;

use crate::worker::Shared;

/// Those of all directories, in the order of the configuration.
pub(crate) fn collect(shared: &Shared) -> Vec<Directory> {
    let looks = shared.rows.directories.looks().into_iter();
    let figures = looks.map(|it| Directory {
        directory: it.name,
        linked: it.is_linked,
        hosts: it.hosts,
        bytes: it.bytes,
        waiting: it.waiting,
        fresh: it.counters.fresh,
        old: it.counters.old,
        asked: it.counters.asked,
        rows: it.counters.rows,
        missing: it.counters.missing,
        wrong: it.counters.wrong,
        down: it.counters.down,
        gave_up: it.counters.gave_up,
        busy: it.counters.busy,
    });
    figures.collect()
}
