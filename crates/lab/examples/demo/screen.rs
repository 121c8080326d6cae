//! What is seen: a bar for each site while it runs, a table in the end. Plain text of 80 columns.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::crowd::{CRAWLER_CONNECTIONS, Looks, Seen, VISITS_PER_SECOND, site_name};
use super::{CRAWLED, LIMIT, PAGE, SITES, WORKERS};
use report::units;

/// Cells of a bar.
const BAR: usize = 42;
/// What a whole bar stands for.
const BAR_US: u64 = 6_000_000;
/// Hides the cursor and clears the screen; shows the cursor again.
const OPEN: &str = "\x1b[?25l\x1b[2J";
const CLOSE: &str = "\x1b[?25h\n";
/// Goes to the first line; clears to the end of a line.
const TOP: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K";

/// A moment.
pub(super) struct Frame {
    pub(super) server: &'static str,
    pub(super) left: Duration,
    pub(super) looks: Looks,
}

/// A terminal that is drawn on, or nothing. Dropping it gives the cursor back.
pub(super) struct Screen {
    is_terminal: bool,
}

impl Screen {
    pub(super) fn open(is_terminal: bool) -> Screen {
        if is_terminal {
            write(OPEN);
        }
        Screen { is_terminal }
    }

    pub(super) fn show(&mut self, frame: &Frame) {
        if self.is_terminal {
            let lines = lines(frame).join(&format!("{END_OF_LINE}\r\n"));
            write(&format!("{TOP}{lines}{END_OF_LINE}"));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_terminal {
            write(CLOSE);
        }
    }
}

/// A terminal that is gone is noticed by a signal.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The lines of a frame: as many as a terminal of 24 lines has room for.
fn lines(frame: &Frame) -> Vec<String> {
    let looks = &frame.looks;
    let pages: u64 = looks
        .sites
        .iter()
        .map(|site| site.replies - site.failed.min(site.replies))
        .sum();
    let seconds = looks.elapsed.as_secs_f64().max(1e-9);
    let left = match frame.left.as_secs() {
        0 => "waiting for those who still wait".to_owned(),
        left => format!("{left} s left"),
    };
    let mut found = vec![
        format!(
            "{}: {SITES} sites on {WORKERS} PHP workers, a page takes {} ms · {left}",
            frame.server,
            PAGE.as_millis()
        ),
        format!(
            "{:<18}{:<BAR$} {:>8} {:>8}",
            "visitors of", "wait, in about the last second", "", "failed"
        ),
    ];
    for (index, site) in looks.sites.iter().enumerate() {
        let wait = match site.wait_us {
            0 => units::NONE.to_owned(),
            us => units::micros(us as f64),
        };
        found.push(format!(
            "{:<18}{} {wait:>8} {:>8}",
            shown_name(index),
            bar(site.wait_us),
            site.failed
        ));
    }
    found.push(format!(
        "pages a second: visitors {}, crawler of site-{:02} * {}",
        units::figure((pages as f64 / seconds).round()),
        CRAWLED + 1,
        units::figure((looks.crawled as f64 / seconds).round())
    ));
    found
}

fn shown_name(site: usize) -> String {
    match site {
        CRAWLED => format!("{} *", site_name(site)),
        _ => site_name(site),
    }
}

/// A bar of exactly [`BAR`] cells; the shortest wait has one.
fn bar(us: u64) -> String {
    let cells = (us.min(BAR_US) as usize * BAR).div_ceil(BAR_US as usize);
    format!("{}{}", "█".repeat(cells), " ".repeat(BAR - cells))
}

/// What visitors of each site waited before each server.
pub(super) fn table(seen: &[(&str, Vec<Seen>)]) -> String {
    let mut out = format!("{:<18}", "");
    for (server, _) in seen {
        let _ = write!(out, "{server:>28}");
    }
    let _ = write!(out, "\n{:<18}", "visitors of");
    for _ in seen {
        let _ = write!(out, "{:>10}{:>10}{:>8}", "p50", "p99", "failed");
    }
    out.push('\n');
    for site in 0..SITES {
        let _ = write!(out, "{:<18}", shown_name(site));
        for seen in seen.iter().filter_map(|(_, sites)| sites.get(site)) {
            let wait = |q| units::micros(seen.waits.quantile_us(q) as f64);
            let _ = write!(out, "{:>10}{:>10}{:>8}", wait(0.5), wait(0.99), seen.failed);
        }
        out.push('\n');
    }
    let _ = write!(out, "{:<18}", "* crawler, pages/s");
    for crawled in seen.iter().filter_map(|(_, sites)| sites.get(CRAWLED)) {
        let _ = write!(
            out,
            "{:>10}{:>18}",
            units::figure(crawled.crawled_per_second.round()),
            ""
        );
    }
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    format!("{}\n\n{}", lines.join("\n"), words())
}

/// What was to be seen, for whoever has not read anything.
fn words() -> String {
    format!(
        "Each site has {VISITS_PER_SECOND} visits a second, and all of them share {WORKERS} PHP workers.\n\
         A crawler asks {} for pages, over {CRAWLER_CONNECTIONS} connections at once.\n\
         nginx passes on what comes first; before Nagaya sites take turns, by one line:\n\
         \x20 limits = [{LIMIT}]\n",
        site_name(CRAWLED)
    )
}

#[cfg(test)]
mod tests {
    use super::super::crowd::Look;
    use super::*;
    use load::client::Series;

    #[test]
    fn a_frame_fits_a_plain_terminal() {
        let look = |wait_us| Look {
            wait_us,
            replies: 40,
            failed: 1_000,
        };
        let frame = Frame {
            server: "nagaya",
            left: Duration::from_secs(12),
            looks: Looks {
                sites: (0..SITES).map(|site| look(site as u64 * 999_999)).collect(),
                crawled: 100_000,
                elapsed: Duration::from_secs(10),
            },
        };
        let lines = lines(&frame);
        assert!(lines.len() <= 24, "{}", lines.len());
        for line in &lines {
            assert!(line.chars().count() < 80, "{line}");
        }
        assert!(lines[2].contains(" – "), "{}", lines[2]);
        assert!(lines[2 + CRAWLED].starts_with("site-07.demo *"));
    }

    #[test]
    fn a_bar_has_its_cells_and_never_more() {
        for (us, cells) in [(0, 0), (1, 1), (BAR_US / 2, BAR / 2), (BAR_US * 9, BAR)] {
            let bar = bar(us);
            assert_eq!(bar.chars().count(), BAR);
            assert_eq!(
                bar.chars().filter(|cell| *cell == '█').count(),
                cells,
                "{us}"
            );
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_site() {
        let mut waits = Series::default();
        waits.record_n(2_500_000, 3);
        let one = Seen {
            waits,
            failed: 0,
            crawled_per_second: 41.3,
        };
        let table = table(&[
            ("nginx", vec![one.clone(); SITES]),
            ("nagaya", vec![one; SITES]),
        ]);
        assert_eq!(table.lines().count(), SITES + 8, "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        assert!(
            table.contains("  nginx") && table.contains("2.50 s"),
            "{table}"
        );
        assert!(table.contains("41\n\nEach site"), "{table}");
    }
}
