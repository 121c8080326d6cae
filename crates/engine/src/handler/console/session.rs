//! Guests of the console: who comes by a link that a panel has signed, and stays by a cookie.
//!
//! The idea: both say all there is to know and are signed with one secret, so that nothing is stored but
//! the links that were used. A link holds for one console, for 60 seconds and once; one from before this
//! process began to serve is refused, as nobody knows any more whether it was used, and one that comes when
//! the process is about to end, too.

use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::model::Console;
use fastcgi::environment::Scheme;
use ipc::query::Query;
use wire::FieldId;

use super::{say_terms, scope};
use crate::conditions::cookies;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::recording::guests::{LinkSignature, LinkUse};
use crate::reply_head;
use crate::stage::Chosen;

/// How long a link holds.
const LINK_S: u64 = 60;
/// How long a guest stays.
const STAY_S: u64 = 12 * 3_600;
/// What a link names in the place of a tenant whose guest sees everybody's figures. Nothing is nobody: a panel
/// may have forgotten to fill it in.
const EVERYBODY: &str = "*";
const COOKIE: &str = "nagaya_console";
/// Cookies of that name that are looked at.
const COOKIES_MAX: usize = 4;
/// Bytes of each part of a link.
const PART_BYTES_MAX: usize = 256;
/// With what a cookie's text begins: no host does, with which a link's begins.
const OF_COOKIE: &str = "cookie of the console";

/// How somebody comes.
#[derive(Debug)]
pub(super) enum GuestEntry {
    /// No links are asked for here.
    Open,
    /// By a cookie.
    Guest(Guest),
    /// By a link that has not been used before.
    Begun(Guest),
}

/// Who was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guest {
    /// Who, for records.
    pub(super) user: String,
    /// Whose figures are seen, of those that the rule shows; `None` for all of these.
    pub(super) tenant: Option<String>,
}

/// Says how somebody comes, and as whom in the record.
///
/// # Errors
/// 403 without a link or a cookie that holds, 503 where too many links came at once.
pub(super) fn entry(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    console: &Console,
) -> Result<GuestEntry> {
    let Some(secret) = &console.secret else {
        return Ok(GuestEntry::Open);
    };
    let key = Key::new(HMAC_SHA256, &secret.bytes);
    let received = exchange.request.received;
    let now = chosen.worker.clock.unix_at(received);
    let now_s = now.as_secs();
    let query = exchange.request.head.query().unwrap_or_default();
    let link = Link::of(str::from_utf8(query).unwrap_or_default());
    let entry = match link {
        // The server after this one would not know that it was used.
        Some(_) if chosen.worker.is_draining() => {
            return Err(Error::new(Kind::Full, "console_links", String::new()));
        }
        Some(link) => {
            let host = exchange.request.head.host();
            let guests = &chosen.worker.shared.guests;
            let since = guests.serves_since.get();
            let lasted = since.map(|since| received.saturating_duration_since(*since));
            let began_s = began_s(now, lasted.unwrap_or_default());
            let guest = link.admitted(&key, (host, &console.base), (now_s, began_s))?;
            scope(*chosen, console, Some(&guest))?;
            match guests.enter(link.signature, link.until_s, now_s) {
                LinkUse::First => GuestEntry::Begun(guest),
                LinkUse::Again => return Err(Error::refused(403, "console_link_used")),
                LinkUse::Full => {
                    let full = Error::new(Kind::Full, "console_links", String::new());
                    return Err(full);
                }
            }
        }
        None => {
            let lines = exchange.request.head.fields.get_all(FieldId::Cookie);
            let values = cookies(lines, COOKIE.as_bytes()).take(COOKIES_MAX);
            let place = (exchange.request.head.host(), &*console.base);
            let mut guests = values.filter_map(|value| of_cookie(&key, place, value, now_s));
            let none = || Error::refused(403, "console_no_session");
            GuestEntry::Guest(guests.next().ok_or_else(none)?)
        }
    };
    if let GuestEntry::Guest(guest) | GuestEntry::Begun(guest) = &entry {
        exchange.record.user.clone_from(&guest.user);
    }
    Ok(entry)
}

/// The first second of which none was before this process began to serve: another may have served until then.
/// It is the same whenever that is asked; `now` is since 1970, `lasted` how long this one has served.
fn began_s(now: Duration, lasted: Duration) -> u64 {
    let began = now.saturating_sub(lasted);
    began.as_secs() + u64::from(began.subsec_nanos() > 0)
}

/// Gives a guest a cookie, and leads to the first page. Not by a redirect: a browser that came from
/// another site takes the cookie along only from a page of this one.
///
/// # Errors
/// As of any answer.
pub(super) async fn begin(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    console: &Console,
    guest: &Guest,
) -> Result<()> {
    let Some(secret) = &console.secret else {
        return Err(Error::refused(403, "console_no_session"));
    };
    let key = Key::new(HMAC_SHA256, &secret.bytes);
    let request = &exchange.request;
    let until_s = chosen.worker.clock.unix_at(request.received).as_secs() + STAY_S;
    let place = (request.head.host(), &*console.base);
    let secure = match request.scheme() {
        Scheme::Https => "; Secure",
        Scheme::Http => "",
    };
    let cookie = format!(
        "{COOKIE}={}; Path={}; Max-Age={STAY_S}; HttpOnly; SameSite=Strict{secure}",
        guest.cookie(&key, place, until_s),
        console.base
    );
    let base = &console.base;
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta http-equiv=\"refresh\" content=\"0;url={base}\"><title>Console</title>\n\
         <p><a href=\"{base}\">To the console</a></p>\n"
    );
    exchange.outgoing.status = 200;
    say_terms(exchange, "text/html; charset=utf-8");
    let fields = &mut exchange.outgoing.fields;
    fields.push_known(FieldId::SetCookie, cookie.as_bytes());
    reply_head::answer(**chosen, exchange, page.as_bytes()).await
}

/// What a panel has signed.
#[derive(Debug)]
struct Link {
    user: String,
    tenant: String,
    until: String,
    nonce: String,
    until_s: u64,
    signature: LinkSignature,
}

impl Link {
    /// That of a query; none where nothing in it is signed as links are.
    fn of(query: &str) -> Option<Link> {
        let query = Query(query);
        let [user, tenant, until, nonce] =
            ["user", "tenant", "until", "nonce"].map(|key| query.text(key));
        Some(Link {
            until_s: until.parse().unwrap_or(0),
            signature: of_hex(&query.text("sig"))?,
            user,
            tenant,
            until,
            nonce,
        })
    }

    /// Lets in who comes to this console, host and path, with it.
    fn admitted(
        &self,
        key: &Key,
        (host, base): (&str, &str),
        (now_s, began_s): (u64, u64),
    ) -> Result<Guest> {
        let parts = [
            host,
            base,
            &self.tenant,
            &self.user,
            &self.until,
            &self.nonce,
        ];
        let is_plain = |part: &&str| {
            part.len() <= PART_BYTES_MAX && !part.bytes().any(|byte| byte.is_ascii_control())
        };
        let signed = parts.join("\n");
        let is_right = hmac::verify(key, signed.as_bytes(), &self.signature).is_ok();
        if !is_right || self.tenant.is_empty() || !parts.iter().all(is_plain) {
            return Err(Error::refused(403, "console_link_wrong"));
        }
        let holds = (now_s..=now_s + LINK_S).contains(&self.until_s);
        if !holds || self.until_s < began_s + LINK_S {
            return Err(Error::refused(403, "console_link_expired"));
        }
        Ok(Guest {
            user: self.user.clone(),
            tenant: Some(self.tenant.clone()).filter(|it| it != EVERYBODY),
        })
    }
}

fn of_hex(text: &str) -> Option<LinkSignature> {
    let mut bytes = [0; 32];
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? * 16 + low?).ok()?;
    }
    Some(bytes)
}

impl Guest {
    /// What a cookie for this guest holds.
    fn cookie(&self, key: &Key, place: (&str, &str), until_s: u64) -> String {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        let said = format!("{until_s}\n{tenant}\n{}", self.user);
        let tag = hmac::sign(key, cookie_text(place, &said).as_bytes());
        let [said, tag] = [said.as_bytes(), tag.as_ref()].map(|it| URL_SAFE_NO_PAD.encode(it));
        format!("{said}.{tag}")
    }
}

/// What a cookie's signature is of: it holds for one host and one console.
fn cookie_text((host, base): (&str, &str), said: &str) -> String {
    [OF_COOKIE, host, base, said].join("\n")
}

/// The guest of a cookie that was signed here, and still holds.
fn of_cookie(key: &Key, place: (&str, &str), value: &[u8], now_s: u64) -> Option<Guest> {
    let (said, tag) = str::from_utf8(value).ok()?.split_once('.')?;
    let [said, tag] = [said, tag].map(|it| URL_SAFE_NO_PAD.decode(it).ok());
    let said = String::from_utf8(said?).ok()?;
    hmac::verify(key, cookie_text(place, &said).as_bytes(), &tag?).ok()?;
    let (until_s, rest) = said.split_once('\n')?;
    let (tenant, user) = rest.split_once('\n')?;
    (until_s.parse::<u64>().ok()? >= now_s).then(|| Guest {
        user: user.to_owned(),
        tenant: Some(tenant.to_owned()).filter(|it| !it.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(HMAC_SHA256, &[b'k'; 32])
    }

    fn query(host: &str, tenant: &str, until: &str) -> String {
        let signed = [host, "/console/", tenant, "alice", until, "n1"].join("\n");
        let tag = hmac::sign(&key(), signed.as_bytes());
        let digits: String = tag.as_ref().iter().map(|it| format!("{it:02x}")).collect();
        format!("user=alice&tenant={tenant}&until={until}&nonce=n1&sig={digits}")
    }

    fn reason(query: &str, host: &str, now_s: u64) -> &'static str {
        reason_at(query, (host, "/console/"), now_s)
    }

    fn reason_at(query: &str, place: (&str, &str), now_s: u64) -> &'static str {
        let link = Link::of(query).expect("a link");
        match link.admitted(&key(), place, (now_s, 1_000)) {
            Ok(_) => "",
            Err(error) => error.reason,
        }
    }

    #[test]
    fn a_link_that_was_let_in_by_its_time_is_so_in_the_next_second_too() {
        let began = Duration::from_millis(1_900);
        for ms in [0, 99, 100, 999, 1_000, 1_050, 1_999, 60_000] {
            let lasted = Duration::from_millis(ms);
            assert_eq!(began_s(began + lasted, lasted), 2, "{ms}");
        }
        let whole = Duration::from_secs(2);
        assert_eq!(began_s(whole, Duration::ZERO), 2);
    }

    #[test]
    fn a_link_holds_for_one_console_one_tenant_and_sixty_seconds() {
        let link = query("a.example", "shop", "2060");
        for now_s in [2_000, 2_030, 2_060] {
            assert_eq!(reason(&link, "a.example", now_s), "");
        }
        for now_s in [0, 1_999, 2_061] {
            assert_eq!(reason(&link, "a.example", now_s), "console_link_expired");
        }
        assert_eq!(reason(&link, "b.example", 2_030), "console_link_wrong");
        let elsewhere = reason_at(&link, ("a.example", "/"), 2_030);
        assert_eq!(elsewhere, "console_link_wrong");
        for (said, instead) in [
            ("tenant=shop", "tenant=other"),
            ("tenant=shop&", ""),
            ("until=2060", "until=2061"),
            ("user=alice", "user=bob"),
            ("nonce=n1", "nonce=n2"),
            ("sig=", "sig=00"),
        ] {
            let other = link.replace(said, instead);
            let wrong = Link::of(&other).is_none()
                || reason(&other, "a.example", 2_030) == "console_link_wrong";
            assert!(wrong, "{other}");
        }
        let nobodys = query("a.example", "", "2060");
        assert_eq!(reason(&nobodys, "a.example", 2_030), "console_link_wrong");
        let everybodys = Link::of(&query("a.example", "*", "2060")).expect("a link");
        let guest = everybodys.admitted(&key(), ("a.example", "/console/"), (2_030, 1_000));
        assert_eq!(guest.expect("it holds").tenant, None);
        let early = query("a.example", "shop", "1059");
        assert_eq!(reason(&early, "a.example", 1_030), "console_link_expired");
        assert!(Link::of("user=alice&until=2060").is_none());
    }

    #[test]
    fn a_cookie_holds_where_it_was_given_until_its_time_and_unchanged() {
        let guest = Guest {
            user: "alice".to_owned(),
            tenant: Some("shop".to_owned()),
        };
        let place = ("a.example", "/console/");
        let cookie = guest.cookie(&key(), place, 5_000);
        let seen = |cookie: &str, place, now_s| of_cookie(&key(), place, cookie.as_bytes(), now_s);
        assert_eq!(seen(&cookie, place, 5_000), Some(guest));
        assert_eq!(seen(&cookie, place, 5_001), None);
        assert_eq!(seen(&cookie, ("b.example", "/console/"), 1), None);
        assert_eq!(seen(&cookie, ("a.example", "/"), 1), None);
        let (_, tag) = cookie.split_once('.').expect("two parts");
        let forged = URL_SAFE_NO_PAD.encode("5000\nother\nalice");
        assert_eq!(seen(&format!("{forged}.{tag}"), place, 1), None);
        let other = Key::new(HMAC_SHA256, &[b'o'; 32]);
        assert_eq!(of_cookie(&other, place, cookie.as_bytes(), 1), None);
        for broken in ["", ".", "a.b", "%", "☃.☃"] {
            assert_eq!(seen(broken, place, 1), None);
        }
    }
}
