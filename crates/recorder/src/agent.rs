//! What a user agent says of itself: a person's browser, system and device, or a bot's name.
//!
//! The idea: browsers, carriers' phones and the older crawlers are what `woothee` knows; crawlers for
//! language models are a list here; and whoever neither claims to be a browser nor is known is a
//! program, so a bot. What somebody pretends to be is not found out.

use std::rc::Rc;

use woothee::parser::Parser;

/// Crawlers for language models and their searches, as they name themselves.
const AI_CRAWLERS: [&str; 34] = [
    "AI2Bot",
    "Amazonbot",
    "anthropic-ai",
    "Bytespider",
    "CCBot",
    "ChatGPT-User",
    "Claude-SearchBot",
    "Claude-User",
    "Claude-Web",
    "ClaudeBot",
    "cohere-ai",
    "cohere-training-data-crawler",
    "Diffbot",
    "DuckAssistBot",
    "FacebookBot",
    "Google-CloudVertexBot",
    "GoogleOther",
    "GPTBot",
    "ICC-Crawler",
    "ImagesiftBot",
    "Kangaroo Bot",
    "meta-externalagent",
    "meta-externalfetcher",
    "MistralAI-User",
    "OAI-SearchBot",
    "omgili",
    "PanguBot",
    "Perplexity-User",
    "PerplexityBot",
    "TikTokSpider",
    "Timpibot",
    "VelenPublicWebCrawler",
    "Webzio-Extended",
    "YouBot",
];
/// What stands in the names of most other crawlers.
const CRAWLER_WORDS: [&str; 8] = [
    "bot", "crawl", "spider", "slurp", "archiver", "monitor", "preview", "headless",
];
/// Bytes of a user agent that are looked at.
const AGENT_BYTES_MAX: usize = 512;
/// Bytes of a bot's name.
const BOT_BYTES_MAX: usize = 40;

/// Who a user agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agent {
    /// Somebody with a browser.
    Person(Rc<Browser>),
    /// A program, by its name.
    Bot(Rc<str>),
}

/// What somebody sees a site with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Browser {
    /// Name and major version: `Chrome 120`.
    pub name: Rc<str>,
    /// Operating system, with a major version where it says something.
    pub system: Rc<str>,
    /// Kind of device; of older mobile phones with the carrier.
    pub device: Rc<str>,
}

impl Agent {
    /// Judges a user agent as it was sent.
    pub fn of(sent: &str) -> Agent {
        let sent = within(sent, AGENT_BYTES_MAX);
        if let Some(name) = AI_CRAWLERS.iter().find(|name| contains(sent, name)) {
            return Agent::Bot(format!("{name} (AI)").into());
        }
        let claims = sent.starts_with("Mozilla/") || sent.starts_with("Opera/");
        let parsed = Parser::new().parse(sent);
        match parsed {
            Some(parsed) if parsed.category == "crawler" => {
                Agent::Bot(bot_name(sent, known(parsed.name)))
            }
            // Libraries and readers of feeds, by their own words.
            Some(parsed) if parsed.category == "misc" => Agent::Bot(bot_name(sent, None)),
            _ if CRAWLER_WORDS.iter().any(|word| contains(sent, word)) => {
                Agent::Bot(bot_name(sent, None))
            }
            Some(parsed) if known(parsed.category).is_some() => {
                let os_version = major(&parsed.os_version);
                Agent::Person(Rc::new(Browser {
                    name: joined(parsed.name, major(parsed.version)),
                    system: match parsed.os {
                        "iPhone" | "iPad" | "iPod" | "Android" => joined(parsed.os, os_version),
                        os => joined(os, ""),
                    },
                    device: device(parsed.category, parsed.os, parsed.name),
                }))
            }
            _ if claims => Agent::Person(Rc::new(Browser {
                name: "unknown".into(),
                system: "unknown".into(),
                device: "unknown".into(),
            })),
            _ => Agent::Bot(bot_name(sent, None)),
        }
    }
}

fn device(category: &str, system: &str, carrier: &str) -> Rc<str> {
    match (category, system) {
        (_, "iPad") => "tablet".into(),
        ("pc", _) => "computer".into(),
        ("smartphone", _) => "smartphone".into(),
        ("mobilephone", _) => format!("mobile phone ({carrier})").into(),
        ("appliance", _) => "console or television".into(),
        (other, _) => other.into(),
    }
}

/// The name of a bot: as it is known, or the word of it that says so, or else its first word.
fn bot_name(sent: &str, known: Option<&str>) -> Rc<str> {
    if let Some(known) = known {
        return known.into();
    }
    let is_part = |byte: char| byte.is_ascii_alphanumeric() || "-_.".contains(byte);
    let mut words = sent.split(|byte: char| !is_part(byte));
    let says = |word: &&str| CRAWLER_WORDS.iter().any(|it| contains(word, it));
    let word = words.clone().find(says).or_else(|| words.next());
    match word.map(|word| within(word, BOT_BYTES_MAX)) {
        None | Some("" | "-") => "no name".into(),
        Some(word) => word.into(),
    }
}

/// What `woothee` says, where it knows.
fn known(word: &str) -> Option<&str> {
    Some(word).filter(|word| {
        !word.is_empty() && !word.eq_ignore_ascii_case("unknown") && !word.starts_with("misc")
    })
}

fn joined(name: &str, version: &str) -> Rc<str> {
    match (known(name), version) {
        (None, _) => "unknown".into(),
        (Some(name), "") => name.into(),
        (Some(name), version) => format!("{name} {version}").into(),
    }
}

/// What stands before the first point of a version, where that is a number.
fn major(version: &str) -> &str {
    let major = version.split(['.', '_']).next().unwrap_or_default();
    match !major.is_empty() && major.len() <= 4 && major.bytes().all(|it| it.is_ascii_digit()) {
        true => major,
        false => "",
    }
}

fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    text.windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn within(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(sent: &str) -> (String, String, String) {
        match Agent::of(sent) {
            Agent::Person(it) => (
                it.name.to_string(),
                it.system.to_string(),
                it.device.to_string(),
            ),
            Agent::Bot(name) => panic!("{sent} is no bot {name}"),
        }
    }

    #[test]
    fn browsers_systems_and_devices_are_told() {
        for (sent, name, system, device) in [
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
                "Chrome 120",
                "Windows 10",
                "computer",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Mobile/15E148 Safari/604.1",
                "Safari 17",
                "iPhone 17",
                "smartphone",
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0",
                "Firefox 115",
                "Linux",
                "computer",
            ),
            (
                "DoCoMo/2.0 N2001(c10;ser0123456789abcde;icc01234567890123456789)",
                "docomo",
                "docomo",
                "mobile phone (docomo)",
            ),
        ] {
            let told = (name.to_owned(), system.to_owned(), device.to_owned());
            assert_eq!(person(sent), told, "{sent}");
        }
        assert_eq!(person("Mozilla/5.0 (Plan 9)").0, "unknown");
    }

    #[test]
    fn bots_are_named_and_those_of_language_models_marked() {
        for (sent, name) in [
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                "Googlebot",
            ),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
                "GPTBot (AI)",
            ),
            ("Mozilla/5.0 (compatible; SomeNewBot/1.0)", "SomeNewBot"),
            ("curl/8.4.0", "curl"),
            ("", "no name"),
            ("-", "no name"),
            ("\u{1f600}", "no name"),
        ] {
            assert_eq!(Agent::of(sent), Agent::Bot(name.into()), "{sent}");
        }
    }

    #[test]
    fn a_long_user_agent_has_a_short_name() {
        let sent = format!("{}bot/1", "x".repeat(5_000));
        let Agent::Bot(name) = Agent::of(&sent) else {
            panic!("it is a bot");
        };
        assert_eq!(name.len(), BOT_BYTES_MAX);
    }
}
