//! A clock that is put back while requests are recorded: who asks notices nothing, no figure is counted twice,
//! no visit and no time is made of it, and a line says so.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use recorder::{FigureStore, Figures, PartsWanted, Tier};

use super::recorded;

const HOUR_S: i64 = 3_600;
/// Seconds by which the clock is put back.
const BACK_S: i64 = 2 * HOUR_S;
/// What processes take for the time of day: the kernel's, and the seconds that a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
typedef int clock_of(clockid_t, struct timespec *);
static clock_of *kernel;
static volatile long long *ahead_s;
__attribute__((constructor)) static void begin(void) {
  kernel = (clock_of *)dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) ahead_s = at;
  close(file);
}
int clock_gettime(clockid_t id, struct timespec *at) {
  int done = kernel(id, at);
  if (done == 0 && ahead_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += *ahead_s;
  return done;
}
"#;

/// A clock that can be put.
struct PutClock {
    library: PathBuf,
    file: PathBuf,
}

impl PutClock {
    /// One beside a gateway; none where there is no compiler.
    fn new(directory: &Path) -> Option<PutClock> {
        let clock = PutClock {
            library: directory.join("clock.so"),
            file: directory.join("clock"),
        };
        let source = directory.join("clock.c");
        fs::write(&source, CLOCK).unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&clock.library)
            .arg(&source)
            .arg("-ldl")
            .status();
        if !made.is_ok_and(|status| status.success()) {
            testkit::lacks("cc", "scripts/bootstrap.sh");
            return None;
        }
        fs::write(&clock.file, 0_i64.to_ne_bytes()).unwrap();
        for file in [&clock.library, &clock.file] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(clock)
    }

    fn put_back(&self) {
        let file = File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(&(-BACK_S).to_ne_bytes(), 0).unwrap();
    }
}

/// The figures of all days, and those of their minutes.
fn sums(store: &FigureStore) -> (Figures, Figures) {
    let (mut days, mut minutes) = (Figures::default(), Figures::default());
    let wanted = PartsWanted::MINUTES;
    let read = store.each_day("a.example", (0, i32::MAX), wanted, |_, day| {
        days.merge(&day.total);
        day.minutes.values().for_each(|it| minutes.merge(it));
    });
    read.unwrap();
    (days, minutes)
}

#[test]
fn a_clock_that_is_put_back_costs_no_request_and_doubles_no_figure() {
    let builder = recorded::builder();
    let Some(clock) = PutClock::new(builder.directory().path()) else {
        return;
    };
    let builder = builder.env("LD_PRELOAD", &clock.library);
    let mut gateway = builder.env("TEST_CLOCK", &clock.file).start();
    recorded::await_look(&gateway);
    recorded::ask_many(&gateway, "a.example", 0..2_000);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| recorded::ask_many(&gateway, "a.example", 2_000..6_000));
        clock.put_back();
        load.join().unwrap();
    });
    gateway.wait_for_message("the clock went back");
    recorded::ask_many(&gateway, "a.example", 6_000..8_000);
    recorded::await_quiet(&gateway);
    assert_eq!(recorded::dropped(&gateway), 0.0);
    let directory = recorded::figures(&gateway);
    assert!(gateway.stop().success());
    let expected = recorded::logged(&gateway);
    assert_eq!(expected.0, 8_000);
    assert_eq!(recorded::recorded(&directory, "a.example"), expected);
    let store = FigureStore::open_existing(&directory).unwrap();
    let (days, minutes) = sums(&store);
    assert_eq!(days, minutes);
    // Of 200 clients every tenth finds nothing; each of the others goes on with its one visit.
    assert_eq!((days.visits, days.bounces, days.views), (180, 0, 7_200));
    assert!(days.visit_s < days.visits * 90, "{} s", days.visit_s);
    let counts = [Tier::Minute, Tier::Hour, Tier::Day].map(|tier| {
        let samples = store.samples("load1", tier, 0, i64::MAX).unwrap();
        assert!(samples.iter().all(|(_, it)| it.low >= 0.0));
        samples.iter().map(|(_, it)| it.count).sum::<f64>()
    });
    assert!(counts[0] > 0.0 && counts == [counts[0]; 3], "{counts:?}");
}
