//! The recorder as a process: it reads the workers' rings and writes figures, and nobody waits for it.
//!
//! The idea: one loop that looks into the rings 20 times a second, folds what is there, and writes every
//! few seconds; what the server says, and people at the console ask, are other threads'
//! ([`crate::hearing`], [`crate::respondent`]). Whatever goes wrong with files is said once, tried again, and costs figures
//! alone; what waits for it meanwhile has a bound. It opens no connection, and ends with the
//! supervisor's link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::reason;
use ipc::recorder::{FromRecorder, RecorderSettings, ToRecorder};
use ipc::ring::{ReaderState, RingKeys, RingReader, RingRecord, TextOf, ToldText};
use jiff::tz::TimeZone;

use crate::fold::{Fold, SITES_MAX};
use crate::hearing::{Heard, Hearing};
use crate::history::Detail;
use crate::names::ByHash;
use crate::reader::{decoded_path, is_site_name};
use crate::salts::{SaltPeriod, Salts};
use crate::sandbox;
use crate::sending::Sending;
use crate::site_minutes::SiteMinutes;
use crate::store::{FigureStore, StoreError, Tier};
use crate::watch::Watch;
use crate::zone::machine_zone;

/// How often the rings are looked into.
const POLL: Duration = Duration::from_millis(50);
/// How often figures are written, and how soon what failed is tried again.
const WRITE_US: u64 = 5_000_000;
/// Names in pieces, or things as large, with which they are written at once: some 30 MB.
const HELD_MAX: usize = 150_000;
/// A request may be so much older than now: a week. One ahead of the clock is of now.
const OLD_US: i64 = 7 * 86_400_000_000;
/// A clock that goes back by more than this is said to.
const BACK_US: i64 = 2_000_000;
/// What the database calls the alerts that were told and are not over.
const ALERTS: &str = "alerts";
/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Rings' memory is mapped, not held open; files of the database are few.
const DESCRIPTORS_MAX: u64 = 4_096;

/// Records until the supervisor has gone: the life of the process.
#[must_use]
pub fn run(user: &str) -> ExitCode {
    let dropped = os::confine::bar_capabilities()
        .and_then(|()| os::process::drop_privileges(user))
        .and_then(|()| os::confine::forget_capabilities());
    error_log::start("recorder");
    let ran = dropped.and_then(|()| begin());
    if let Err(error) = &ran {
        tracing::error!(error = reason(error), user, "the recorder cannot go on");
    }
    error_log::flush(FLUSH);
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Shuts this process in, hears by what it works, and works.
fn begin() -> io::Result<()> {
    os::process::set_name("nagaya-recorder");
    let link = os::process::take_stdin()?;
    os::confine::close_all_but(&link)?;
    os::process::die_with_parent(&link)?;
    os::confine::bound_descriptors(DESCRIPTORS_MAX)?;
    // Salts are in its memory.
    os::confine::keep_from_debuggers()?;
    if let Err(error) = sandbox::filter().and_then(|it| it.enter()) {
        let error = reason(&error);
        tracing::warn!(error, "the kernel refuses the recorder nothing");
    }
    let settings = match ToRecorder::recv(link.as_fd()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        Ok(ToRecorder::Settings(settings)) => settings,
        Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
        Err(error) => return Err(error),
    };
    os::process::give_way(settings.nice)?;
    let recorder = Recorder::new(settings)?;
    let directory = recorder.settings.directory.clone();
    let hearing = Hearing::start(directory, Arc::clone(&recorder.heard))?;
    recorder.serve(&link, &hearing)
}

/// What the loop has.
struct Recorder {
    settings: RecorderSettings,
    fold: Fold,
    rings: Vec<RingReader>,
    keys: RingKeys,
    /// `None` where files cannot be used for now.
    files: Option<RecorderFiles>,
    /// What was wrong with files when that was last said.
    said: Option<String>,
    /// When figures are written next, by `CLOCK_MONOTONIC`, as the others.
    next_write_us: u64,
    written_us: u64,
    /// Requests that were folded since figures were last written.
    unwritten: u64,
    /// Records that made no sense.
    broken: u64,
    /// What the server says, and the thread that hears it.
    heard: Arc<Heard>,
    /// The thread that sends minutes elsewhere, where that is wanted.
    sending: Option<Sending>,
    /// What somebody wants to be told of, what is to be told, and what the database says was told.
    watch: Watch,
    news: Vec<FromRecorder>,
    told_alerts: String,
    /// What sites came to in the minute under way, and how often each was asked in the second.
    minutes: SiteMinutes,
    of_second: ByHash<u64, u64>,
    /// When it looked last, and the second that was dealt with last.
    looked_us: i64,
    second: i64,
    /// The minute in which figures over time were written last.
    samples_s: i64,
}

/// The database and the salt.
struct RecorderFiles {
    store: FigureStore,
    salts: Salts,
}

impl Recorder {
    fn new(settings: RecorderSettings) -> io::Result<Recorder> {
        let mut recorder = Recorder {
            fold: Fold::new(TimeZone::UTC, Vec::new()),
            rings: Vec::new(),
            keys: RingKeys::default(),
            files: None,
            said: None,
            next_write_us: 0,
            written_us: 0,
            unwritten: 0,
            broken: 0,
            heard: Arc::new(Heard::watching(&settings.alerts)),
            sending: None,
            watch: Watch::new(&settings.alerts),
            news: Vec::new(),
            told_alerts: String::new(),
            minutes: SiteMinutes::watching(&settings.alerts),
            of_second: ByHash::default(),
            settings,
            looked_us: i64::MIN,
            second: 0,
            samples_s: 0,
        };
        recorder.keys.names = halves(random()?);
        recorder.open();
        // It reads what is opened by then.
        recorder.sending = Sending::wanted(&recorder.settings, &recorder.heard)?;
        Ok(recorder)
    }

    /// Looks and writes until the link is closed, or something is wrong with it, and then once more.
    fn serve(mut self, link: &OwnedFd, hearing: &Hearing) -> io::Result<()> {
        let served = self.serve_on(link, hearing);
        self.read(now_us());
        self.samples_s = 0;
        self.write(now_us());
        self.end();
        served
    }

    fn serve_on(&mut self, link: &OwnedFd, hearing: &Hearing) -> io::Result<()> {
        loop {
            if os::net::wait_readable(&[link.as_fd()], Some(POLL))? == [true] {
                match ToRecorder::recv(link.as_fd()) {
                    Ok(ToRecorder::Rings { rings, console }) => {
                        self.use_rings(&rings);
                        hearing.use_link(console);
                    }
                    Ok(ToRecorder::Archive { sending, asking }) => {
                        if let Some(thread) = &self.sending {
                            thread.use_link(sending);
                        }
                        hearing.use_archive(asking);
                    }
                    Ok(ToRecorder::Settings(_)) => return Err(io::ErrorKind::InvalidData.into()),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if hearing.has_ended() {
                return Err(io::Error::other(
                    "the thread that hears the server has ended",
                ));
            }
            let now_us = now_us();
            self.look(now_us);
            // What is kept as told was told before.
            self.tell_news(link)?;
            self.write_when_due(now_us);
        }
    }

    /// Reads other rings from now on; what is in those of before counts.
    fn use_rings(&mut self, rings: &[OwnedFd]) {
        self.read(now_us());
        let mapped = rings.as_chunks().0.iter();
        let mapped = mapped.map(|[ring, cursor]| RingReader::new(ring.as_fd(), cursor.as_fd()));
        match mapped.collect() {
            Ok(rings) => self.rings = rings,
            Err(error) => {
                let error = reason(&error);
                tracing::error!(error, "the workers' rings cannot be mapped");
                self.rings.clear();
            }
        }
        tracing::info!(workers = self.rings.len(), "recording");
        self.tell_anew();
    }

    /// One turn.
    fn look(&mut self, now_us: i64) {
        let back_us = self.looked_us.saturating_sub(now_us);
        self.looked_us = now_us;
        if back_us > BACK_US {
            let seconds = back_us / 1_000_000;
            tracing::warn!(seconds, "the clock went back: figures go on from there");
            self.fold.clock_went_back(back_us);
        }
        self.read(now_us);
        self.renew_salt(now_us);
        if self.fold.make_room() {
            self.tell_anew();
        }
        let second = now_us.div_euclid(1_000_000);
        if self.second != second {
            self.second = second;
            self.each_second(second);
        }
    }

    /// Writes where it is time to, and says how far it is.
    fn write_when_due(&mut self, now_us: i64) {
        let monotonic_us = os::cpu::monotonic_us();
        if monotonic_us >= self.next_write_us || self.fold.held() > HELD_MAX {
            self.write(now_us);
            self.next_write_us = monotonic_us + WRITE_US;
        }
        let state = ReaderState {
            seen_us: monotonic_us,
            written_us: self.written_us,
            cpu_us: os::cpu::process_cpu_ns() / 1_000,
            sent: self
                .sending
                .as_ref()
                .map(Sending::state)
                .unwrap_or_default(),
        };
        self.rings.iter().for_each(|ring| ring.say(&state));
    }

    /// Notes what sites came to, when a minute is over, and looks at what somebody wants to be told of.
    fn each_second(&mut self, now_s: i64) {
        for (name, value) in self.minutes.over(now_s) {
            // In the minute of which it is told.
            let at_s = Tier::Minute.begin(now_s) - 1;
            self.heard.note(at_s, &name, value, Detail::Minutes);
        }
        for site in self.minutes.followed() {
            let requests = self.of_second.get(&self.keys.site(site));
            let requests = requests.copied().unwrap_or(0) as f64;
            self.heard
                .hold(now_s - 1, &format!("site.{site}.requests"), requests);
        }
        self.of_second.clear();
        let watch = &mut self.watch;
        let news = self.heard.look(|history| watch.look(history, now_s));
        let news = news.into_iter();
        self.news
            .extend(news.map(|(rule, news)| FromRecorder::Alert { rule, news }));
        self.heard.show_alerts(self.watch.states().to_vec());
    }

    /// Tells the supervisor which alerts have news, and then keeps that it was told.
    fn tell_news(&mut self, link: &OwnedFd) -> io::Result<()> {
        if self.news.is_empty() {
            return Ok(());
        }
        for news in &self.news {
            news.send(link.as_fd())?;
        }
        self.news.clear();
        self.keep_alerts();
        Ok(())
    }

    /// Keeps which alerts were told, unless one has news that nobody was told of.
    fn keep_alerts(&mut self) {
        if !self.news.is_empty() {
            return;
        }
        let told = self.watch.told();
        let Some(files) = self.files.as_mut().filter(|_| told != self.told_alerts) else {
            return;
        };
        match files.store.set_setting(ALERTS, &told) {
            Ok(()) => self.told_alerts = told,
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Has the workers begin anew, where there is a salt to hash visitors with.
    fn tell_anew(&self) {
        if self.keys.salt != [0; 2] {
            let rings = self.rings.iter();
            rings.for_each(|ring| ring.tell_anew(&self.keys));
        }
    }

    fn read(&mut self, now_us: i64) {
        let fold = std::cell::RefCell::new(&mut self.fold);
        let (mut foreign, of_second) = (0, &mut self.of_second);
        for ring in &mut self.rings {
            let counts = ring.read(
                |text| tell(&mut fold.borrow_mut(), &text),
                |record| match record.at_us >= now_us.saturating_sub(OLD_US) {
                    true => {
                        let stands_for = record.stands_for.max(1);
                        if of_second.len() < SITES_MAX || of_second.contains_key(&record.site) {
                            *of_second.entry(record.site).or_default() += u64::from(stands_for);
                        }
                        fold.borrow_mut().take(&RingRecord {
                            at_us: record.at_us.min(now_us),
                            stands_for,
                            ..*record
                        });
                    }
                    false => foreign += 1,
                },
            );
            self.unwritten += counts.records;
            foreign += u64::from(counts.was_broken);
        }
        if foreign > 0 && self.broken == 0 {
            tracing::error!("a worker tells what makes no sense: that is left out");
        }
        self.broken += foreign;
    }

    /// Takes the salt of today.
    fn renew_salt(&mut self, now_us: i64) {
        let today = self.fold.day_of(now_us);
        let Some(files) = &mut self.files else {
            return;
        };
        match files.salts.of_now(today) {
            Ok(salt) if halves(salt) == self.keys.salt => {}
            Ok(salt) => {
                self.keys.salt = halves(salt);
                self.tell_anew();
            }
            Err(error) => self.fail(format!("write the salt: {}", reason(&error))),
        }
    }

    /// Opens database and salt; where that cannot be, later.
    fn open(&mut self) {
        match RecorderFiles::open(&self.settings) {
            Ok((mut files, fold)) => {
                self.fold = fold;
                let visits = files.store.open_visits().unwrap_or_default();
                for visit in visits {
                    self.fold.resume(self.keys.site(&visit.site), &visit);
                }
                self.told_alerts = files
                    .store
                    .setting(ALERTS)
                    .ok()
                    .flatten()
                    .unwrap_or_default();
                self.watch.resume(&self.told_alerts);
                self.files = Some(files);
                self.renew_salt(now_us());
            }
            Err(why) => self.fail(why),
        }
    }

    /// Writes what was folded. Where that cannot be it waits, as far as there is room for it.
    fn write(&mut self, now_us: i64) {
        if self.files.is_none() {
            self.open();
        }
        self.keep_alerts();
        match self.write_all(now_us) {
            Ok(true) => {
                self.minutes.note_written();
                self.written_us = os::cpu::monotonic_us();
            }
            Ok(false) => self.drop_surplus(),
            Err(error) => {
                self.fail(error.to_string());
                self.drop_surplus();
            }
        }
    }

    /// Writes all there is; says whether there are files to write to.
    fn write_all(&mut self, now_us: i64) -> Result<bool, StoreError> {
        let today = self.fold.day_of(now_us);
        let Some(files) = &mut self.files else {
            return Ok(false);
        };
        write_samples(&mut self.samples_s, &self.heard, files, now_us)?;
        let incidents = self.heard.incidents();
        let write = |store: &mut FigureStore| store.write_incidents(&incidents);
        if let Err(error) = write_or_set_aside(&mut files.store, now_us, write) {
            self.heard.keep_incidents(incidents);
            return Err(error);
        }
        if self.fold.held() == 0 && files.store.is_thinned(today) {
            return Ok(true);
        }
        let write = |store: &mut FigureStore| store.write(self.fold.pieces(), None, today);
        write_or_set_aside(&mut files.store, now_us, write)?;
        let pieces = self.fold.pieces();
        pieces.for_each(|(site, _, piece)| self.minutes.take(site, piece));
        self.fold.written();
        self.unwritten = 0;
        if self.said.take().is_some() {
            tracing::info!("figures are written again");
        }
        Ok(true)
    }

    /// Forgets what could not be written, where it is too much.
    fn drop_surplus(&mut self) {
        self.minutes.note_unwritten();
        if self.fold.held() > HELD_MAX {
            let requests = std::mem::take(&mut self.unwritten);
            tracing::error!(requests, "figures that cannot be written are lost");
            self.fold.written();
        }
    }

    /// Says what is wrong, once.
    fn fail(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            tracing::error!("{why}: figures wait, and are lost when they become too many");
            self.said = Some(why);
        }
    }

    fn end(mut self) {
        let visits = self.fold.open_visits();
        if let Some(files) = &mut self.files
            && let Err(error) = files.store.keep_open_visits(&visits)
        {
            tracing::error!("{error}");
        }
    }
}

impl RecorderFiles {
    /// Opens database and salt; tells what to fold by, which the database may have settled.
    fn open(settings: &RecorderSettings) -> Result<(RecorderFiles, Fold), String> {
        let said = |error: StoreError| error.to_string();
        let directory = &settings.directory;
        let now_us = now_us();
        let now_s = u64::try_from(now_us / 1_000_000).unwrap_or(0);
        let (mut store, aside) = FigureStore::open(directory, now_s).map_err(said)?;
        if let Some(aside) = aside {
            let aside = aside.display().to_string();
            tracing::error!(
                aside,
                "the figures were broken and are set aside; new ones begin"
            );
        }
        match settings.is_sent {
            true => store.mark_unsent(),
            false => store.forget_unsent(),
        }
        .map_err(said)?;
        let zone = settings.zone.clone().unwrap_or_else(machine_zone);
        let zone = settled(&mut store, "zone", &zone).map_err(said)?;
        let salt = settled(&mut store, "salt", &settings.salt).map_err(said)?;
        let zone = TimeZone::get(&zone).map_err(|error| format!("time zone {zone}: {error}"))?;
        let mut fold = Fold::new(zone, settings.groups.clone());
        let period = SaltPeriod::of_word(&salt).unwrap_or_default();
        let salts = Salts::open(directory, period, fold.day_of(now_us), random);
        let salts = salts.map_err(|error| {
            format!(
                "read the salt in {}: {}",
                directory.display(),
                reason(&error)
            )
        })?;
        Ok((RecorderFiles { store, salts }, fold))
    }
}

/// Writes figures over time, once a minute: each takes three pages of the database or so. What could not be
/// written waits.
fn write_samples(
    samples_s: &mut i64,
    heard: &Heard,
    files: &mut RecorderFiles,
    now_us: i64,
) -> Result<(), StoreError> {
    let now_s = now_us.div_euclid(1_000_000);
    if *samples_s == Tier::Minute.begin(now_s) {
        return Ok(());
    }
    let samples = heard.fresh(now_s);
    let write = |store: &mut FigureStore| store.write_samples(&samples);
    let written = write_or_set_aside(&mut files.store, now_us, write);
    match &written {
        Ok(()) if samples.is_empty() => {}
        Ok(()) => *samples_s = Tier::Minute.begin(now_s),
        Err(_) => heard.keep(samples),
    }
    written
}

/// What holds for all that is in the database: what it says, or else this.
fn settled(store: &mut FigureStore, name: &str, wanted: &str) -> Result<String, StoreError> {
    let known = store.setting(name)?;
    if let Some(known) = known {
        if known != wanted {
            tracing::warn!(
                known,
                wanted,
                "the {name} of figures that are there stays as it is"
            );
        }
        return Ok(known);
    }
    store.set_setting(name, wanted)?;
    Ok(wanted.to_owned())
}

/// Writes something; where the database is broken, into a new one, which has the same settings.
fn write_or_set_aside(
    store: &mut FigureStore,
    now_us: i64,
    write: impl Fn(&mut FigureStore) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    match write(store) {
        Err(error) if error.is_broken() => {
            set_aside(store, now_us, &error)?;
            write(store)
        }
        written => written,
    }
}

fn set_aside(store: &mut FigureStore, now_us: i64, why: &StoreError) -> Result<(), StoreError> {
    let now_s = u64::try_from(now_us / 1_000_000).unwrap_or(0);
    let aside = store.set_aside(now_s)?.display().to_string();
    tracing::error!(aside, "{why}: the figures are set aside; new ones begin");
    Ok(())
}

/// Folds a text that a worker tells: it may be anything. What another worker told, too, is known.
fn tell(fold: &mut Fold, told: &ToldText<'_>) {
    if fold.knows(told.hash) {
        return;
    }
    let text = String::from_utf8_lossy(told.bytes);
    match told.of {
        TextOf::Site if is_site_name(&text) => fold.tell_site(told.hash, &text),
        TextOf::Site => {}
        TextOf::Path => fold.tell(told.hash, told.of, &decoded_path(&text)),
        of => fold.tell(told.hash, of, &text),
    }
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(bytes);
    [number as u64, (number >> 64) as u64]
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    os::random::fill(&mut bytes)?;
    Ok(bytes)
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_us = since.map_or(0, |since| since.as_micros());
    i64::try_from(since_us).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
