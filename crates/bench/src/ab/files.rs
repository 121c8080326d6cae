//! The files of `-e` and `-g`: times by percentage, and every request's.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use os::calendar::CalendarTime;

use super::figures::{Figures, ms};
use super::refusal::{Refusal, refuse_plainly};
use load::client::Exchange;

/// What becomes of a file that cannot be written, as with ApacheBench.
const FAILED: u8 = 1;

/// Writes the times by percentage.
pub(crate) fn write_percentages(file: &Path, figures: &Figures<'_>) -> Result<(), Refusal> {
    let mut csv = String::from("Percentage served,Time in ms\n");
    for percentage in 0..=100 {
        let time_ms = figures.csv_us(percentage) as f64 / 1000.0;
        // Writing to memory does not fail.
        let _ = writeln!(csv, "{percentage},{time_ms:.3}");
    }
    written(file, std::fs::write(file, csv))
}

/// Writes each request's times, the shortest first.
pub(crate) fn write_each(
    file: &Path,
    mut each: Vec<Exchange>,
    began: SystemTime,
) -> Result<(), Refusal> {
    each.sort_by_key(|exchange| exchange.total_us);
    let result = File::create(file).and_then(|open| {
        let mut out = BufWriter::new(open);
        out.write_all(b"starttime\tseconds\tctime\tdtime\tttime\twait\n")?;
        for exchange in &each {
            out.write_all(line(exchange, began).as_bytes())?;
        }
        out.flush()
    });
    written(file, result)
}

fn line(exchange: &Exchange, began: SystemTime) -> String {
    let started = began + Duration::from_micros(exchange.start_us);
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Good for some billions of years.
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    format!(
        "{}\t{seconds}\t{}\t{}\t{}\t{}\n",
        in_words(seconds),
        ms(exchange.connect_us),
        ms(exchange.total_us.saturating_sub(exchange.connect_us)),
        ms(exchange.total_us),
        ms(exchange.waiting_us)
    )
}

/// `Sun Nov 22 06:37:52 2026`, local time.
fn in_words(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let Some(time) = CalendarTime::local(seconds) else {
        return String::new();
    };
    format!(
        "{} {} {:02} {:02}:{:02}:{:02} {}",
        DAYS.get(time.weekday).unwrap_or(&"?"),
        MONTHS.get(time.month).unwrap_or(&"?"),
        time.day,
        time.hour,
        time.minute,
        time.second,
        time.year
    )
}

fn written(file: &Path, result: std::io::Result<()>) -> Result<(), Refusal> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => refuse_plainly(FAILED, format!("write {}: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_whole_milliseconds_and_the_second_it_began() {
        let exchange = Exchange {
            start_us: 1_500_000,
            connect_us: 1_499,
            total_us: 7_500,
            waiting_us: 4_500,
            ..Exchange::default()
        };
        let line = line(&exchange, UNIX_EPOCH + Duration::from_secs(1_000_036_799));
        let columns: Vec<_> = line.trim_end().split('\t').collect();
        assert_eq!(
            columns.get(1..),
            Some(&["1000036800", "1", "6", "8", "5"][..])
        );
        assert!(columns[0].starts_with("Sun Sep 09 ") || columns[0].starts_with("Mon Sep 10 "));
        assert!(columns[0].ends_with(":00 2001"), "{line}");
    }
}
