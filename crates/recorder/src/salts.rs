//! Salts that addresses are hashed with, and for how long each holds.
//!
//! The idea: an address is nowhere kept. What stands for a visitor is a hash with a salt that is gone
//! when its day, week or month is over; from then on nobody can say whose it was, and the same person
//! is another visitor. The salt of now is in a file, so that a run an hour later knows the visitors of
//! this one; those of earlier days, met in old logs, last as long as the process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::ToSpan;
use jiff::civil::{Date, date};
use siphasher::sip::SipHasher24;

/// Salts of other times that are held.
const KEPT_MAX: usize = 400;
/// The file in the recorder's directory.
const FILE: &str = "salt";

/// How long a salt holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SaltPeriod {
    /// A day.
    #[default]
    Day,
    /// A week, from Monday on.
    Week,
    /// A month.
    Month,
}

impl SaltPeriod {
    /// All.
    pub const ALL: [SaltPeriod; 3] = [SaltPeriod::Day, SaltPeriod::Week, SaltPeriod::Month];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            SaltPeriod::Day => "day",
            SaltPeriod::Week => "week",
            SaltPeriod::Month => "month",
        }
    }

    /// The one of this word.
    pub fn of_word(word: &str) -> Option<SaltPeriod> {
        SaltPeriod::ALL.into_iter().find(|it| it.word() == word)
    }

    /// The number of the period that a day after 1970 is in.
    pub fn number(self, day: i32) -> i64 {
        match self {
            SaltPeriod::Day => day.into(),
            // 1970 began with a Thursday.
            SaltPeriod::Week => (i64::from(day) + 3).div_euclid(7),
            SaltPeriod::Month => {
                let date = civil(day);
                i64::from(date.year()) * 12 + i64::from(date.month()) - 1
            }
        }
    }
}

/// The date of a day after 1970.
pub fn civil(day: i32) -> Date {
    date(1970, 1, 1).saturating_add(day.days())
}

/// The day after 1970 of a date.
pub fn day_number(of: Date) -> i32 {
    let since = of.since(date(1970, 1, 1));
    since.map_or(0, |span| span.get_days())
}

/// A source of random bytes.
pub type Random = fn() -> io::Result<[u8; 16]>;

/// All salts in use.
#[derive(Debug)]
pub struct Salts {
    period: SaltPeriod,
    salts: BTreeMap<i64, [u8; 16]>,
    file: PathBuf,
    /// The day asked for last, and the number of its period.
    last: (i32, i64),
    /// Today, and the number of its period: the salt of that is in the file.
    now: (i32, i64),
    random: Random,
}

impl Salts {
    /// Reads the salt of now from a directory; one whose time is over is deleted.
    ///
    /// # Errors
    /// Where the file cannot be read or deleted.
    pub fn open(
        directory: &Path,
        period: SaltPeriod,
        today: i32,
        random: Random,
    ) -> io::Result<Salts> {
        let file = directory.join(FILE);
        let now = period.number(today);
        let mut salts = BTreeMap::new();
        match fs::read_to_string(&file) {
            Ok(text) => match parsed(&text)
                // One of later is of before the clock went back.
                .filter(|(word, number, _)| *word == period.word() && *number >= now)
            {
                Some((_, number, salt)) => {
                    salts.insert(number, salt);
                }
                None => fs::remove_file(&file)?,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Salts {
            period,
            salts,
            file,
            last: (today, now),
            now: (today, now),
            random,
        })
    }

    /// Who a client is on this day: a hash of its address and user agent for this site.
    pub(crate) fn visitor(
        &mut self,
        day: i32,
        today: i32,
        [site, address, agent]: [&str; 3],
    ) -> io::Result<u64> {
        self.expire(today)?;
        if self.last.0 != day {
            self.last = (day, self.period.number(day));
        }
        let number = self.last.1;
        let salt = match self.salts.get(&number) {
            Some(salt) => *salt,
            None => self.made(number)?,
        };
        let mut hasher = SipHasher24::new_with_key(&salt);
        for part in [site, address, agent] {
            hasher.write(part.as_bytes());
            hasher.write_u8(0xff);
        }
        Ok(hasher.finish())
    }

    /// The salt of now.
    pub(crate) fn of_now(&mut self, today: i32) -> io::Result<[u8; 16]> {
        self.expire(today)?;
        let number = self.now.1;
        match self.salts.get(&number) {
            Some(salt) => Ok(*salt),
            None => self.made(number),
        }
    }

    /// Puts the salt of now into the file's place where a new time has begun, whether or not it was
    /// made before; that of before is deleted. A clock that goes back changes nothing.
    pub(crate) fn expire(&mut self, today: i32) -> io::Result<()> {
        if today == self.now.0 {
            return Ok(());
        }
        let number = self.period.number(today);
        if number > self.now.1 {
            match self.salts.get(&number) {
                Some(salt) => self.store(number, salt)?,
                None => remove(&self.file)?,
            }
            // Late lines of the time before may come; those of old logs are nowhere but here.
            let over = self.now.1..number - 1;
            self.salts.retain(|kept, _| !over.contains(kept));
        }
        self.now = (today, number.max(self.now.1));
        Ok(())
    }

    fn made(&mut self, number: i64) -> io::Result<[u8; 16]> {
        let salt = (self.random)()?;
        if number == self.now.1 {
            self.store(number, &salt)?;
        }
        if self.salts.len() >= KEPT_MAX {
            self.salts.pop_first();
        }
        self.salts.insert(number, salt);
        Ok(salt)
    }

    /// Writes the salt of now in the place of the one before.
    fn store(&self, number: i64, salt: &[u8; 16]) -> io::Result<()> {
        let mut text = format!("{} {number} ", self.period.word());
        for byte in salt {
            // A string takes what is written to it.
            let _ = write!(text, "{byte:02x}");
        }
        let new = self.file.with_extension("new");
        // One that was left over may be readable by others.
        remove(&new)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.file)
    }
}

/// Removes a file, where there is one.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Period, its number and the salt.
fn parsed(text: &str) -> Option<(&str, i64, [u8; 16])> {
    let mut words = text.split_ascii_whitespace();
    let (period, number, hex) = (words.next()?, words.next()?, words.next()?);
    let salt = u128::from_str_radix(hex, 16).ok()?;
    Some((period, number.parse().ok()?, salt.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU8, Ordering};

    use testkit::TempDir;

    use super::*;

    fn counted() -> io::Result<[u8; 16]> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        Ok([NEXT.fetch_add(1, Ordering::Relaxed); 16])
    }

    fn open(directory: &TempDir, period: SaltPeriod, today: i32) -> Salts {
        Salts::open(directory.path(), period, today, counted).expect("it opens")
    }

    #[test]
    fn days_weeks_and_months_are_numbered() {
        let day = |text: &str| day_number(text.parse().expect("a date"));
        let sunday = day("2026-11-01");
        assert_eq!(civil(sunday).to_string(), "2026-11-01");
        for (period, same) in [
            (SaltPeriod::Day, [true, false, false]),
            (SaltPeriod::Week, [true, false, false]),
            (SaltPeriod::Month, [true, true, false]),
        ] {
            let told = ["2026-11-01", "2026-11-02", "2026-12-01"]
                .map(|it| period.number(day(it)) == period.number(sunday));
            assert_eq!(told, same, "{period:?}");
        }
        let week = |text| SaltPeriod::Week.number(day(text));
        assert_eq!(week("2026-11-02"), week("2026-11-08"));
    }

    #[test]
    fn a_visitor_is_the_same_within_a_salt_and_another_after_it_and_on_another_site() {
        let directory = TempDir::new();
        let of = ["a.example", "192.0.2.7", "agent"];
        let mut salts = open(&directory, SaltPeriod::Day, 10);
        let who = salts.visitor(10, 10, of).expect("a salt");
        assert_eq!(salts.visitor(10, 10, of).expect("a salt"), who);
        assert_ne!(salts.visitor(11, 10, of).expect("a salt"), who);
        let elsewhere = ["b.example", "192.0.2.7", "agent"];
        assert_ne!(salts.visitor(10, 10, elsewhere).expect("a salt"), who);
        // A later run of the same day.
        let mut salts = open(&directory, SaltPeriod::Day, 10);
        assert_eq!(salts.visitor(10, 10, of).expect("a salt"), who);
    }

    #[test]
    fn a_salt_is_its_owners_alone_and_deleted_when_its_time_is_over() {
        let directory = TempDir::new();
        let file = directory.path().join(FILE);
        let mut salts = open(&directory, SaltPeriod::Day, 10);
        salts.visitor(9, 10, ["a", "b", "c"]).expect("a salt");
        assert!(!file.exists(), "one of earlier is not stored");
        salts.visitor(10, 10, ["a", "b", "c"]).expect("a salt");
        let mode = fs::metadata(&file).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        open(&directory, SaltPeriod::Day, 11);
        assert!(!file.exists());
    }

    #[test]
    fn a_salt_of_tomorrow_is_stored_when_tomorrow_comes_and_that_of_today_deleted() {
        let directory = TempDir::new();
        let stored = || fs::read_to_string(directory.path().join(FILE)).expect("it is there");
        let of = ["a", "b", "c"];
        let mut salts = open(&directory, SaltPeriod::Day, 10);
        salts.visitor(10, 10, of).expect("a salt");
        // A line that is a little ahead of our clock.
        let early = salts.visitor(11, 10, of).expect("a salt");
        assert!(stored().starts_with("day 10 "));
        assert_eq!(salts.visitor(11, 11, of).expect("a salt"), early);
        assert!(stored().starts_with("day 11 "));
        salts.visitor(11, 10, of).expect("a salt");
        assert!(stored().starts_with("day 11 "), "the clock went back");
        let mut salts = open(&directory, SaltPeriod::Day, 10);
        assert_eq!(salts.visitor(11, 11, of).expect("a salt"), early);
        salts.expire(12).expect("it is deleted");
        assert!(!directory.path().join(FILE).exists());
    }
}
