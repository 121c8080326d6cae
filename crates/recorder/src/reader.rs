//! Lines of logs made into records, as a server would make them of requests.
//!
//! The idea: here is the last place that sees an address or a query. What leaves is a salted hash of
//! the one, and of the other the values of a few named keys.

use std::borrow::Cow;
use std::hash::Hasher;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use config::countries::{CountryFile, KnownCountries};
use ipc::query::{Query, decoded};
use ipc::ring::{RingRecord, TextOf, UNKNOWN_US};
use ipnet::IpNet;
use siphasher::sip::SipHasher13;

use crate::fold::Fold;
use crate::line::{LoggedReply, path, read_reply};
use crate::salts::Salts;

/// A line may be so much ahead of the clock, in microseconds: five minutes.
const AHEAD_US: i64 = 300_000_000;
/// 2000-01-01; what claims to be older has no clock.
const OLDEST_US: i64 = 946_684_800_000_000;

/// What of lines is wanted.
#[derive(Debug, Default)]
pub struct ReadingOptions {
    /// The site of all lines; otherwise each has to tell its own.
    pub site: Option<String>,
    /// Hosts that count as another site: pairs of lower case.
    pub aliases: Vec<(String, String)>,
    /// Networks of the operator's own, which are not recorded.
    pub own: Vec<IpNet>,
    /// Keys of queries that say what was searched for.
    pub searches: Vec<String>,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFate {
    /// It was folded.
    Taken,
    /// It was the operator's own access.
    Own,
    /// It was for none of the server's sites.
    NoSite,
}

/// Makes records of lines.
#[derive(Debug)]
pub struct LogReader {
    options: ReadingOptions,
    salts: Salts,
    /// Names are hashed with it.
    secret: [u8; 16],
    countries: Option<(Arc<CountryFile>, KnownCountries)>,
}

/// Why a line was not taken.
#[derive(Debug)]
pub enum LineError {
    /// It cannot be read, or says nothing that can be counted.
    Unreadable(&'static str),
    /// A salt cannot be made or stored.
    Salt(io::Error),
}

impl LogReader {
    /// Reads for these sites, with these salts; `secret` is to be random.
    pub fn new(options: ReadingOptions, salts: Salts, secret: [u8; 16]) -> LogReader {
        LogReader {
            options,
            salts,
            secret,
            countries: None,
        }
    }

    /// Tells countries by a database of MaxMind's format.
    ///
    /// # Errors
    /// Where it cannot be read, in words.
    pub fn with_countries(mut self, file: &Path) -> Result<LogReader, String> {
        let file = CountryFile::read(file)?;
        self.countries = Some((Arc::new(file), KnownCountries::default()));
        Ok(self)
    }

    /// Folds a line that is read at this time.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn take(
        &mut self,
        line: &str,
        now_us: i64,
        fold: &mut Fold,
    ) -> Result<LineFate, LineError> {
        fold.make_room();
        let reply = read_reply(line).map_err(LineError::Unreadable)?;
        if reply.is_of_no_site && self.options.site.is_none() {
            return Ok(LineFate::NoSite);
        }
        let site = self.site(&reply).map_err(LineError::Unreadable)?;
        if !(OLDEST_US..=now_us.saturating_add(AHEAD_US)).contains(&reply.at_us) {
            return Err(LineError::Unreadable("its time cannot be right"));
        }
        let address: Option<IpAddr> = reply.client.parse().ok();
        if address.is_some_and(|it| self.options.own.iter().any(|own| own.contains(&it))) {
            return Ok(LineFate::Own);
        }
        let [day, today] = [reply.at_us, now_us].map(|at_us| fold.day_of(at_us));
        let of = [&*site, &*reply.client, &*reply.agent];
        let visitor = self.salts.visitor(day, today, of);
        let visitor = visitor.map_err(LineError::Salt)?;
        let site_hash = self.hash(u8::MAX, &site);
        fold.tell_site(site_hash, &site);
        let query = Query::of(&reply.target);
        let micros = |us: Option<u64>| {
            us.map_or(UNKNOWN_US, |us| u32::try_from(us).unwrap_or(UNKNOWN_US - 1))
        };
        let record = RingRecord {
            at_us: reply.at_us,
            site: site_hash,
            path: self.name(fold, TextOf::Path, path(&reply.target), decoded_path),
            referrer: self.name(fold, TextOf::Referrer, &reply.referrer, Cow::Borrowed),
            agent: self.name(fold, TextOf::Agent, &reply.agent, Cow::Borrowed),
            campaign: self.name(fold, TextOf::Name, &query.campaign(), Cow::Borrowed),
            search: self.name(
                fold,
                TextOf::Name,
                &query.search(&self.options.searches),
                Cow::Borrowed,
            ),
            visitor,
            bytes_out: reply.bytes,
            total_us: micros(reply.total_us),
            queue_us: micros(reply.queue_us),
            upstream_us: micros(reply.upstream_us),
            program_us: UNKNOWN_US,
            stands_for: u16::try_from(reply.stands_for.max(1)).unwrap_or(u16::MAX),
            status: reply.status,
            country: match (&mut self.countries, address) {
                (Some((file, known)), Some(address)) => known.country(file, address),
                _ => [0; 2],
            },
            is_look: reply.method == "GET",
            ..RingRecord::default()
        };
        fold.take(&record);
        Ok(LineFate::Taken)
    }

    /// Deletes the salt of a time that is over.
    pub(crate) fn expire(&mut self, today: i32) -> io::Result<()> {
        self.salts.expire(today)
    }

    /// The hash that a visit of an earlier run is gone on with.
    pub fn site_hash(&self, site: &str) -> u64 {
        self.hash(u8::MAX, site)
    }

    fn site(&self, reply: &LoggedReply<'_>) -> Result<String, &'static str> {
        if let Some(site) = &self.options.site {
            return Ok(site.clone());
        }
        let site = reply.site.trim_end_matches('.').to_ascii_lowercase();
        let alias = self.options.aliases.iter().find(|(host, _)| *host == site);
        let site = alias.map_or(site, |(_, site)| site.clone());
        match is_site_name(&site) {
            true => Ok(site),
            false if site.is_empty() || site == "-" => Err("it names no site (--site does)"),
            false => Err("its site is no name of a host"),
        }
    }

    /// The hash of a text, which is told where it was not.
    fn name<'t>(
        &self,
        fold: &mut Fold,
        of: TextOf,
        text: &'t str,
        shown: impl Fn(&'t str) -> Cow<'t, str>,
    ) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let hash = self.hash(of as u8, text);
        if !fold.knows(hash) {
            fold.tell(hash, of, &shown(text));
        }
        hash
    }

    /// Never 0, which says that there is nothing.
    fn hash(&self, of: u8, text: &str) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write_u8(of);
        hasher.write(text.as_bytes());
        hasher.finish().max(1)
    }
}

/// Whether a name may be a site's: a host's, one that stands for several, or `*`, the site of all others.
pub fn is_site_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]*".contains(&byte);
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphanumeric());
    name == "*" || (name.len() <= 253 && has_letter && name.bytes().all(is_part))
}

/// The path of a target, as people read it.
pub(crate) fn decoded_path(target: &str) -> Cow<'_, str> {
    let path = path(target);
    match path.contains('%') {
        true => Cow::Owned(decoded(path)),
        false => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_decoded_where_that_is_text() {
        for (target, shown) in [
            ("/%E7%8C%AB?x", "/猫"),
            ("/%ff", "/%ff"),
            ("/%0a%zz%", "/%0a%zz%"),
            ("http://a.example/b?c", "/b"),
            ("/go/http://a.example/b", "/go/http://a.example/b"),
            ("*", "*"),
        ] {
            assert_eq!(decoded_path(target), shown, "{target}");
        }
    }

    #[test]
    fn a_site_is_the_name_of_a_host() {
        for (name, is) in [
            ("a.example", true),
            ("[::1]:8080", true),
            ("*", true),
            ("**", false),
            ("", false),
            ("-", false),
            ("<b>", false),
            ("a b", false),
        ] {
            assert_eq!(is_site_name(name), is, "{name}");
        }
        assert!(!is_site_name(&"a".repeat(254)));
    }
}
