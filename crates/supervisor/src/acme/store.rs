//! The store of an account: a directory that several machines may share, and one writes.
//!
//! The idea: everything in it is a file that is replaced as a whole, for its owner alone, and all
//! writing goes by the [`Lease`]. What there is:
//!
//! | below the store | what |
//! |---|---|
//! | `account.json` | the account's key, and where it is |
//! | `certificates/NAME.pem` | a chain and its key in one file, so that both change at once |
//! | `firsts/NAME` | when the first certificate came of a name that is ordered on demand: for a week |
//! | `pending/NAME.key` | the key of an order under way, until its chain has come |
//! | `pending/NAME.order` | the account, and the URL of an order that was begun |
//! | `challenges/TOKEN` | the host, and what is answered to an authority that asks there |
//! | `challenges/HOST.tls-alpn` | the host, and the digest that a certificate shows to an authority |
//! | `challenges/VALUE.dns` | the host, and the value of a record in the domain name system that may be there |
//! | `readers/OWNER` | a machine that answers challenges, too: changed while it lives; names that its clients ask for |
//! | `lease.N`, `writing.N.OWNER` | who writes ([`Lease`]) |

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ipc::acme::Proof;

use super::lease::{Lease, make_directory};

/// Bytes of a file of the store.
const FILE_BYTES_MAX: u64 = 512 * 1024;
/// A machine that reads says so this often, and is believed for three times as long.
const READER_BEAT: Duration = Duration::from_secs(5);
/// How long it is remembered that a name was new.
const FIRST: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long what belongs to an order lies there that nobody has gone on with.
const PENDING: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How often what is too old is looked for.
const SWEEP: Duration = Duration::from_secs(24 * 3_600);

/// For how long it says that a name is asked for there, and how many names.
const ASKED: Duration = Duration::from_secs(30);
const ASKS_MAX: usize = 200;
/// Challenges that are looked through: more than there are at once, with all records.
const PUBLISHED_MAX: usize = 10_000;
/// Machines that are listened to.
const READERS_MAX: usize = 100;

/// What the name of a file ends with that has the digest of a certificate; no token has a dot.
const TLS_ALPN: &str = ".tls-alpn";
/// What one ends with that has a record, which no machine shows.
const DNS: &str = ".dns";

/// What is published of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Publication {
    /// The name.
    pub(super) name: String,
    /// What an authority is shown.
    pub(super) proof: Proof,
}

impl Publication {
    /// Its file, and what stands in it below the name.
    fn entry(&self) -> (String, String) {
        match &self.proof {
            Proof::Http {
                token,
                authorization,
            } => (token.clone(), authorization.clone()),
            Proof::TlsAlpn { digest } => {
                let digest = digest.iter().map(|byte| format!("{byte:02x}"));
                (format!("{}{TLS_ALPN}", self.name), digest.collect())
            }
            Proof::Dns { value } => (format!("{value}{DNS}"), value.clone()),
        }
    }

    /// What such a file says.
    fn of_entry(file: String, text: &str) -> Option<Publication> {
        let (name, shown) = text.trim_end().split_once('\n')?;
        let shown_as = shown.to_owned();
        let proof = if file.ends_with(TLS_ALPN) {
            let digest = digest_of(shown)?;
            Proof::TlsAlpn { digest }
        } else if file.ends_with(DNS) {
            Proof::Dns { value: shown_as }
        } else {
            Proof::Http {
                token: file,
                authorization: shown_as,
            }
        };
        let name = name.to_owned();
        proof.is_sound().then_some(Publication { name, proof })
    }
}

/// The digest that these digits spell.
fn digest_of(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2)?;
        let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_plain)?;
    }
    Some(digest)
}

/// A store.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    lease: Lease,
    /// When this machine said last that it reads.
    said: Option<Instant>,
    /// The names it would have ordered, were it to write, and since when.
    asks: Vec<(String, Instant)>,
    /// The names that other machines asked for when that was read last.
    heard: HashSet<String>,
    /// When this machine looked last for what is too old.
    swept: Option<Instant>,
}

impl Store {
    /// Opens the store in this directory, which is made where it is missing.
    pub(super) fn open(directory: &Path, lease: Duration) -> io::Result<Store> {
        let lease = Lease::new(directory, lease)?;
        for part in ["certificates", "firsts", "pending", "challenges", "readers"] {
            make_directory(&directory.join(part))?;
        }
        Ok(Store {
            directory: directory.to_owned(),
            lease,
            said: None,
            asks: Vec::new(),
            heard: HashSet::new(),
            swept: None,
        })
    }

    /// Where it is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether this machine writes it.
    pub(super) fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// When it is to be looked at again.
    pub(super) fn until(&self) -> Instant {
        self.lease.until()
    }

    /// Keeps the lease, or takes it over.
    pub(super) fn step(&mut self, now: Instant) -> io::Result<()> {
        let before = self.lease.is_held();
        self.lease.step(now)?;
        if !before && self.lease.is_held() {
            // What the one before had published is asked for by nobody; of records it is to be
            // known that they may be there.
            self.clear("challenges")?;
            self.swept = None;
        }
        let is_due = |swept: Instant| now.duration_since(swept) >= SWEEP;
        if self.lease.is_held() && self.swept.is_none_or(is_due) {
            self.swept = Some(now);
            self.sweep("firsts", FIRST)?;
            self.sweep("pending", PENDING)?;
        }
        Ok(())
    }

    /// Removes files that nobody has changed for so long.
    fn sweep(&mut self, part: &str, kept: Duration) -> io::Result<()> {
        let now = SystemTime::now();
        for entry in fs::read_dir(self.directory.join(part))? {
            let entry = entry?;
            let changed = entry.metadata().and_then(|facts| facts.modified());
            let age = changed.map(|changed| now.duration_since(changed).unwrap_or_default());
            if age.is_ok_and(|age| age > kept)
                && let Ok(name) = entry.file_name().into_string()
            {
                self.lease.remove(&format!("{part}/{name}"))?;
            }
        }
        Ok(())
    }

    /// The account, where it was made.
    pub(super) fn account(&self) -> Option<Vec<u8>> {
        self.read("account.json").ok()
    }

    /// Keeps the account.
    pub(super) fn keep_account(&mut self, json: &[u8]) -> io::Result<()> {
        self.lease.write("account.json", json)
    }

    /// The account and the URL of an order that was begun.
    pub(super) fn order(&self, certificate: &str) -> Option<(String, String)> {
        let text = self.read(&order_name(certificate)).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (account, url) = text.trim_end().split_once('\n')?;
        Some((account.to_owned(), url.to_owned()))
    }

    /// Keeps which order was begun.
    pub(super) fn keep_order(
        &mut self,
        certificate: &str,
        account: &str,
        url: &str,
    ) -> io::Result<()> {
        let text = format!("{account}\n{url}\n");
        self.lease.write(&order_name(certificate), text.as_bytes())
    }

    /// The key of an order under way.
    pub(super) fn key(&self, certificate: &str) -> io::Result<Vec<u8>> {
        self.read(&key_name(certificate))
    }

    /// Keeps the key of an order under way, before anybody hears of it.
    pub(super) fn keep_key(&mut self, certificate: &str, pem: &[u8]) -> io::Result<()> {
        self.lease.write(&key_name(certificate), pem)
    }

    /// Puts a chain and the key of its order in the place of the certificate.
    pub(super) fn keep_certificate(&mut self, certificate: &str, pem: &[u8]) -> io::Result<()> {
        let name = format!("certificates/{certificate}.pem");
        self.lease.write(&name, pem)?;
        self.remove_order(certificate)
    }

    /// Forgets an order that was begun.
    pub(super) fn remove_order(&mut self, certificate: &str) -> io::Result<()> {
        // The order first: without it, its key is nobody's.
        for name in [order_name(certificate), key_name(certificate)] {
            if self.directory.join(&name).exists() {
                self.lease.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Whether there is a certificate.
    pub(super) fn has_certificate(&self, certificate: &str) -> bool {
        let name = format!("certificates/{certificate}.pem");
        self.directory.join(name).exists()
    }

    /// When the first certificate of a name came, where that is known still.
    pub(super) fn first_s(&self, certificate: &str) -> Option<i64> {
        let text = self.read(&format!("firsts/{certificate}")).ok()?;
        std::str::from_utf8(&text).ok()?.trim_end().parse().ok()
    }

    /// Keeps when it came.
    pub(super) fn keep_first(&mut self, certificate: &str, at_s: i64) -> io::Result<()> {
        let name = format!("firsts/{certificate}");
        self.lease.write(&name, format!("{at_s}\n").as_bytes())
    }

    /// Takes a certificate away that nobody uses any more.
    pub(super) fn remove_certificate(&mut self, certificate: &str) -> io::Result<()> {
        self.lease
            .remove(&format!("certificates/{certificate}.pem"))
    }

    /// Has other machines answer with this.
    pub(super) fn publish(&mut self, publication: &Publication) -> io::Result<()> {
        let (file, shown) = publication.entry();
        let text = format!("{}\n{shown}\n", publication.name);
        self.lease
            .write(&format!("challenges/{file}"), text.as_bytes())
    }

    /// Takes it back.
    pub(super) fn withdraw(&mut self, publication: &Publication) -> io::Result<()> {
        let (file, _) = publication.entry();
        self.lease.remove(&format!("challenges/{file}"))
    }

    /// What the machine that writes has published, for all machines to show.
    pub(super) fn published(&self) -> io::Result<Vec<Publication>> {
        self.entries(|file| !file.ends_with(DNS))
    }

    /// Records that may be there: of each its name and its value.
    pub(super) fn records(&self) -> io::Result<Vec<(String, String)>> {
        let records = self.entries(|file| file.ends_with(DNS))?;
        let records = records.into_iter().filter_map(|it| match it.proof {
            Proof::Dns { value } => Some((it.name, value)),
            Proof::Http { .. } | Proof::TlsAlpn { .. } => None,
        });
        Ok(records.collect())
    }

    /// What the files say whose names are so.
    fn entries(&self, is_meant: impl Fn(&str) -> bool) -> io::Result<Vec<Publication>> {
        let entries = fs::read_dir(self.directory.join("challenges"))?;
        let names = entries.take(PUBLISHED_MAX);
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let published = names.filter(|file| is_meant(file)).filter_map(|file| {
            let text = self.read(&format!("challenges/{file}")).ok()?;
            let text = String::from_utf8(text).ok()?;
            Publication::of_entry(file, &text)
        });
        Ok(published.collect())
    }

    /// Says that this machine answers, too.
    pub(super) fn say_reader(&mut self, now: Instant) -> io::Result<()> {
        let is_due = |said: Instant| now.duration_since(said) >= READER_BEAT;
        if self.said.is_none_or(is_due) {
            self.asks
                .retain(|(_, since)| now.duration_since(*since) < ASKED);
            let names = self.asks.iter().map(|(name, _)| format!("{name}\n"));
            // What is lost of it, where it is half written, is asked for again.
            fs::write(self.mark(), format!("reads\n{}", names.collect::<String>()))?;
            self.said = Some(now);
        }
        Ok(())
    }

    /// Has the machine that writes know that a name is asked for here.
    pub(super) fn ask(&mut self, name: &str, now: Instant) {
        let is_known = self.asks.iter().any(|(known, _)| known == name);
        if !is_known && self.asks.len() < ASKS_MAX {
            self.asks.push((name.to_owned(), now));
            self.said = None;
        }
    }

    /// The names that other machines ask for and did not ask for before.
    pub(super) fn asked(&mut self) -> io::Result<Vec<String>> {
        let mut heard = HashSet::new();
        for entry in fs::read_dir(self.directory.join("readers"))?.take(READERS_MAX) {
            let Ok(owner) = entry?.file_name().into_string() else {
                continue;
            };
            // One that has gone meanwhile asks for nothing.
            let text = self.read(&format!("readers/{owner}")).unwrap_or_default();
            let text = String::from_utf8(text).unwrap_or_default();
            let names = text.lines().skip(1).take(ASKS_MAX);
            heard.extend(names.map(str::to_owned));
        }
        let before = std::mem::replace(&mut self.heard, heard);
        let fresh = self.heard.iter().filter(|name| !before.contains(*name));
        Ok(fresh.cloned().collect())
    }

    /// Whether other machines answer, too. Their marks are compared with one that is made now, so
    /// that the clock is that of whoever keeps the files.
    pub(super) fn has_readers(&self) -> io::Result<bool> {
        let own = self.mark();
        fs::write(&own, "writes\n")?;
        let now = fs::metadata(&own)?.modified()?;
        fs::remove_file(&own)?;
        let entries = fs::read_dir(self.directory.join("readers"))?;
        Ok(entries.filter_map(Result::ok).any(|entry| {
            let said = entry.metadata().and_then(|facts| facts.modified());
            let age = said.map(|said| now.duration_since(said).unwrap_or_default());
            age.is_ok_and(|age| age < READER_BEAT * 3)
        }))
    }

    fn mark(&self) -> PathBuf {
        self.directory.join("readers").join(self.lease.owner())
    }

    fn clear(&mut self, part: &str) -> io::Result<()> {
        for entry in fs::read_dir(self.directory.join(part))? {
            if let Ok(name) = entry?.file_name().into_string()
                && !name.ends_with(DNS)
            {
                self.lease.remove(&format!("{part}/{name}"))?;
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.directory.join(name))?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_BYTES_MAX {
            true => Err(ErrorKind::FileTooLarge.into()),
            false => Ok(bytes),
        }
    }
}

fn order_name(certificate: &str) -> String {
    format!("pending/{certificate}.order")
}

fn key_name(certificate: &str) -> String {
    format!("pending/{certificate}.key")
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    fn store(directory: &TempDir) -> Store {
        let mut store = Store::open(directory.path(), Duration::from_secs(30)).unwrap();
        store.step(Instant::now()).unwrap();
        store
    }

    #[test]
    fn a_server_that_is_started_by_another_program_has_what_this_one_published() {
        let directory = TempDir::new();
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:1\"\ntls = true\n[acme.test]\nstore = \"{}\"\n\
             directory = \"https://ca.example/\"\n[[sites]]\nhosts = [\"a.example\"]\nroot = \"/srv\"\ntls = {{ acme = \"test\" }}\n",
            directory.path().display()
        );
        let model = config::load(&config::Sources::from_text("nagaya.toml", &text));
        let wishes = super::super::Wishes::of(&model.unwrap());
        let (token, authorization) = ("t".repeat(43), format!("{0}.{0}", "t".repeat(43)));
        let proof = Proof::Http {
            token,
            authorization,
        };
        let name = "a.example".to_owned();
        let kept = Store::open(&wishes.accounts[0].store, Duration::from_secs(30));
        let mut kept = kept.unwrap();
        kept.step(Instant::now()).unwrap();
        kept.publish(&Publication { name, proof }).unwrap();
        let left = super::super::left_by_another(&wishes, &mut crate::keeper::Keys::default());
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn orders_that_nobody_goes_on_with_and_firsts_that_count_no_more_leave_the_store() {
        let directory = TempDir::new();
        let mut first = store(&directory);
        let day = Duration::from_secs(24 * 3_600);
        for (days, name) in [(6, "new"), (8, "week"), (31, "month")] {
            first.keep_order(name, "le", "https://ca/1").unwrap();
            first.keep_key(name, b"key").unwrap();
            first.keep_first(name, days).unwrap();
            let changed = SystemTime::now() - day * u32::try_from(days).unwrap();
            for file in [format!("firsts/{name}"), order_name(name), key_name(name)] {
                let file = File::options()
                    .append(true)
                    .open(directory.path().join(file));
                file.unwrap().set_modified(changed).unwrap();
            }
        }
        first.step(Instant::now() + SWEEP).unwrap();
        let kept = ["new", "week", "month"].map(|name| {
            let is_pending = first.order(name).is_some() && first.key(name).is_ok();
            (first.first_s(name), is_pending)
        });
        assert_eq!(kept, [(Some(6), true), (None, true), (None, false)]);
        first.remove_order("week").unwrap();
        assert!(first.order("week").is_none() && first.key("week").is_err());
        let left = fs::read_dir(directory.path().join("pending")).unwrap();
        assert_eq!(left.count(), 2);
    }

    fn challenge(token: &str) -> Publication {
        Publication {
            name: "a.example".into(),
            proof: Proof::Http {
                token: token.into(),
                authorization: format!("{token}.thumb"),
            },
        }
    }

    #[test]
    fn what_is_kept_is_found_again_and_a_certificate_ends_its_order() {
        let directory = TempDir::new();
        let mut first = store(&directory);
        assert!(first.is_held());
        first.keep_account(b"{}").unwrap();
        first.keep_order("a.example", "le", "https://ca/1").unwrap();
        first.keep_key("a.example", b"key").unwrap();
        drop(first);
        let mut second = store(&directory);
        assert_eq!(second.account().as_deref(), Some(&b"{}"[..]));
        let order = ("le".into(), "https://ca/1".into());
        assert_eq!(second.order("a.example"), Some(order));
        assert_eq!(second.key("a.example").unwrap(), b"key");
        assert_eq!(second.order("b.example"), None);
        second.keep_certificate("a.example", b"chain key").unwrap();
        assert_eq!(second.order("a.example"), None);
        assert!(second.key("a.example").is_err());
        let file = directory.path().join("certificates/a.example.pem");
        assert_eq!(fs::read(file).unwrap(), b"chain key");
    }

    #[test]
    fn readers_see_what_is_published_and_the_writer_sees_that_there_are_readers() {
        let directory = TempDir::new();
        let mut writer = store(&directory);
        let mut reader = store(&directory);
        assert!(writer.is_held() && !reader.is_held());
        assert!(!writer.has_readers().unwrap());
        writer.publish(&challenge("one")).unwrap();
        assert_eq!(reader.published().unwrap(), [challenge("one")]);
        assert!(reader.publish(&challenge("two")).is_err());
        // Both are of one process here, and have one name.
        fs::write(directory.path().join("readers/another"), "").unwrap();
        assert!(writer.has_readers().unwrap());
        reader.say_reader(Instant::now()).unwrap();
        writer.withdraw(&challenge("one")).unwrap();
        assert_eq!(reader.published().unwrap(), []);
    }

    #[test]
    fn the_writer_hears_once_what_a_reader_asks_for_and_a_reader_does_not_ask_for_ever() {
        let directory = TempDir::new();
        let mut writer = store(&directory);
        let mut reader = store(&directory);
        let now = Instant::now();
        for index in 0..2 * ASKS_MAX {
            reader.ask(&format!("n{}.example", index / 2), now);
        }
        reader.ask("one.more.example", now);
        reader.say_reader(now).unwrap();
        let mut asked = writer.asked().unwrap();
        asked.sort();
        assert_eq!(asked.len(), ASKS_MAX);
        assert_eq!(asked[0], "n0.example");
        assert_eq!(writer.asked().unwrap(), Vec::<String>::new());
        reader.say_reader(now + ASKED).unwrap();
        reader.ask("n0.example", now + ASKED);
        assert!(writer.asked().unwrap().is_empty());
        reader.say_reader(now + ASKED).unwrap();
        assert_eq!(writer.asked().unwrap(), ["n0.example"]);
    }

    #[test]
    fn readers_see_the_digest_of_a_certificate_and_nothing_that_is_none() {
        let directory = TempDir::new();
        let mut writer = store(&directory);
        let digest = std::array::from_fn(|at| u8::try_from(at * 8).unwrap());
        let publication = Publication {
            name: "2001:db8::1".into(),
            proof: Proof::TlsAlpn { digest },
        };
        writer.publish(&publication).unwrap();
        assert_eq!(
            writer.published().unwrap(),
            std::slice::from_ref(&publication)
        );
        for (file, text) in [
            ("a.tls-alpn", "a.example\n0011\n".to_owned()),
            ("b.tls-alpn", format!("b.example\n{}\n", "+1".repeat(32))),
            ("c.tls-alpn", "c.example".to_owned()),
            ("d", "d.example\nanother.thumb\n".to_owned()),
        ] {
            fs::write(directory.path().join("challenges").join(file), text).unwrap();
        }
        assert_eq!(
            writer.published().unwrap(),
            std::slice::from_ref(&publication)
        );
        writer.withdraw(&publication).unwrap();
        assert_eq!(writer.published().unwrap(), []);
    }

    #[test]
    fn a_record_is_shown_by_no_machine_and_stays_known_until_it_is_taken_back() {
        let directory = TempDir::new();
        let mut writer = store(&directory);
        let value = "va-lue_1".to_owned();
        let name = "*.a.example".to_owned();
        let left = [(name.clone(), value.clone())];
        let proof = Proof::Dns { value };
        let publication = Publication { name, proof };
        writer.publish(&publication).unwrap();
        assert_eq!(writer.published().unwrap(), []);
        drop(writer);
        let mut next = store(&directory);
        assert_eq!(next.records().unwrap(), left);
        next.withdraw(&publication).unwrap();
        assert_eq!(next.records().unwrap(), []);
    }

    #[test]
    fn what_the_writer_before_had_published_is_taken_back() {
        let directory = TempDir::new();
        let mut first = store(&directory);
        first.publish(&challenge("one")).unwrap();
        drop(first);
        assert_eq!(store(&directory).published().unwrap(), []);
    }
}
