//! What stands around every page: the head with its policy, where one can go, which days are shown.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope};
use maud::{Markup, PreEscaped, html};
use report::{Document, Frame, Language, Phrase};
use sha2::{Digest, Sha256};

use super::address::{Address, Format, Page, PageQuery, Titled};
use super::live::LivePage;
use super::site::{self, SitePart};
use super::{Asking, NoPage, export};
use crate::salts::civil;

/// Seconds after which a page that changes is asked for anew, where no script runs.
const REFRESH_S: u32 = 5;
/// Days of ranges that are a link away.
const PRESETS: [(i32, Phrase); 5] = [
    (1, Phrase::new("today", "今日")),
    (7, Phrase::new("7 days", "7 日")),
    (28, Phrase::new("28 days", "28 日")),
    (91, Phrase::new("13 weeks", "13 週")),
    (365, Phrase::new("a year", "1 年")),
];
/// What people call all sites.
pub(super) const SITES: Phrase = Phrase::new("Sites", "サイト");
/// What people call figures over time.
pub(super) const HISTORY: Phrase = Phrase::new("History", "推移");
/// What people call what was taken.
pub(super) const LOAD: Phrase = Phrase::new("Load", "負荷");
const SCRIPT: &str = include_str!("live.js");
static STYLE: LazyLock<String> =
    LazyLock::new(|| format!("{}{}", report::style(), include_str!("style.css")));
/// What a page may load: nothing. It may look like this, and be asked of here again.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(&STYLE)
    )
});
/// The same, with the script that takes what is new.
static LIVE_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}; script-src '{}'; connect-src 'self'",
        *POLICY,
        hash(SCRIPT)
    )
});

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// An answer with the policy that all of them have in their head; all else there is the server's to say.
pub(super) fn answer(status: u16, content_type: &str, body: String) -> ConsoleAnswer {
    ConsoleAnswer {
        id: 0,
        status,
        content_type: content_type.to_owned(),
        fields: vec![("Content-Security-Policy".to_owned(), POLICY.clone())],
        body,
    }
}

fn html_answer(status: u16, body: String) -> ConsoleAnswer {
    answer(status, "text/html; charset=utf-8", body)
}

/// What changed of a page, as an event; where nothing more comes the next is asked for a second later.
pub(super) fn event(changing: &str) -> ConsoleAnswer {
    let lines = changing.lines().map(|line| format!("data: {line}\n"));
    let body = format!("retry: 1000\n{}\n", lines.collect::<String>());
    answer(200, "text/event-stream", body)
}

/// Why there is no page, without a word of what was asked for.
pub(super) fn no_page(
    question: &ConsoleQuestion,
    language: Language,
    why: &NoPage,
) -> ConsoleAnswer {
    let say = |english, japanese| Phrase::new(english, japanese).said_in(language).to_owned();
    let (status, title, told) = match why {
        NoPage::Unknown => (
            404,
            say("Not found", "ページがありません"),
            say(
                "There is no such page here. Sites and their pages are listed below Sites.",
                "このページはありません。サイトは「サイト」の一覧から選べます。",
            ),
        ),
        NoPage::Wrong(parameter) => (
            400,
            say("Not understood", "解釈できません"),
            format!(
                "`{parameter}`: {}",
                say(
                    "this part of the address cannot be understood. Days are written as 2026-11-27, the earlier one first, three years apart at most.",
                    "アドレスのこの部分を解釈できません。日付は 2026-11-27 の形で、古い日を先に、3 年以内で指定してください。",
                )
            ),
        ),
        NoPage::Unreadable(error) if error.is_late() => (
            503,
            say("It takes too long", "時間がかかりすぎます"),
            say(
                "This page takes too long to be read: ask for fewer days.",
                "読み取りに時間がかかりすぎます。日数を減らしてください。",
            ),
        ),
        NoPage::Unreadable(error) => (
            500,
            say("The figures cannot be read", "記録を読めません"),
            match question.scope {
                ConsoleScope::All => error.to_string(),
                // Paths are not a tenant's to know.
                ConsoleScope::Tenants(_) => say(
                    "Try again later; the server's error log says why.",
                    "しばらくしてから再度お試しください。理由はサーバのエラーログにあります。",
                ),
            },
        ),
    };
    let format = ipc::query::Query(&question.query).value("format");
    if let Some(format) = Format::of_word(&format) {
        return export::refusal(format, status, &told);
    }
    let mut document = Document::new(title, "");
    document.answer = Some((report::Tone::Warn, told));
    let address = Address {
        base: &question.base,
        page: Page::Sites,
        asked: PageQuery {
            language: Some(language),
            ..PageQuery::default()
        },
    };
    let body = html! {
        (top(&question.scope, &address, None, language))
        main id="main" { (document.head()) }
    };
    html_answer(status, framed(language, &document.title, html! {}, body))
}

fn framed(language: Language, title: &str, head: Markup, body: Markup) -> String {
    let frame = Frame {
        language,
        title: &format!("{title} · Nagaya"),
        style: &STYLE,
        head,
        body,
    };
    frame.to_html()
}

/// A document over some days as it is asked for: a list of it for other programs, or a page.
pub(super) fn given(
    asking: &Asking<'_>,
    mut document: Document,
    of: &str,
    tabs: Option<(&str, SitePart)>,
    days: (i32, i32),
) -> Result<ConsoleAnswer, NoPage> {
    if let Some(format) = asking.address.asked.format {
        return export::answer(asking, format, &document, of, days);
    }
    site::link_lists(asking, &mut document);
    Ok(page(asking, tabs, &document, days))
}

pub(super) fn page(
    asking: &Asking<'_>,
    tabs: Option<(&str, SitePart)>,
    document: &Document,
    (from, to): (i32, i32),
) -> ConsoleAnswer {
    let body = html! {
        (top(asking.scope, &asking.address, Some(&asking.address.page), asking.language))
        main id="main" {
            (heading(document))
            @if let Some((site, part)) = tabs { (parts(asking, site, part)) }
            (range(asking, from, to))
            @if let Some(missing) = &asking.missing {
                p.of {
                    (asking.telling().say(
                        "As it was sent: minutes that are over, up to two minutes ago.",
                        "送信済みの記録です（2 分ほど前までの、終わった分）。",
                    ))
                }
                @for it in missing { p.of { (it) } }
            }
            (document.facts())
            (document.body())
        }
    };
    html_answer(
        200,
        framed(asking.language, &document.title, html! {}, body),
    )
}

/// A page of what goes on now; what changes of it comes anew by itself, what stands below stays.
pub(super) fn live_page(
    asking: &Asking<'_>,
    document: &Document,
    changing: &str,
    below: Option<&Document>,
    days: Option<(i32, i32)>,
) -> ConsoleAnswer {
    let address = &asking.address;
    let events = address.events(asking.language);
    let head = html! {
        noscript { meta http-equiv="refresh" content=(REFRESH_S); }
    };
    let body = html! {
        (top(asking.scope, address, Some(&address.page), asking.language))
        main id="main" {
            (heading(document))
            @if let Some((from, to)) = days {
                (range(asking, from, to))
            } @else {
                form.range method="get" action=(address.path()) { (filter(asking)) }
            }
            div data-events=(events) { (PreEscaped(changing)) }
            @if let Some(below) = below { (below.facts()) (below.body()) }
        }
        script { (PreEscaped(SCRIPT)) }
    };
    let mut answer = html_answer(200, framed(asking.language, &document.title, head, body));
    if let Some((_, policy)) = answer.fields.first_mut() {
        policy.clone_from(&LIVE_POLICY);
    }
    answer
}

fn heading(document: &Document) -> Markup {
    Document::new(&document.title, &document.subtitle).head()
}

/// Where one can go from every page.
fn top(
    scope: &ConsoleScope,
    address: &Address<'_>,
    current: Option<&Page>,
    language: Language,
) -> Markup {
    let live = LivePage::all().filter(|page| page.is_shown_to(scope));
    let is_sites = matches!(current, Some(Page::Sites | Page::Site(..)));
    html! {
        a.skip href="#main" { (Phrase::new("To the figures", "本文へ").said_in(language)) }
        div.top {
            nav aria-label=(Phrase::new("Pages", "ページ").said_in(language)) {
                a href=(address.to(Page::Sites)) aria-current=[is_sites.then_some("page")] {
                    (SITES.said_in(language))
                }
                @for (page, title) in [(Page::Load, LOAD), (Page::History, HISTORY)] {
                    @let is_current = current == Some(&page);
                    a href=(address.to(page)) aria-current=[is_current.then_some("page")] {
                        (title.said_in(language))
                    }
                }
                @for page in live {
                    @let is_current = current == Some(&Page::Live(page));
                    a href=(address.to(Page::Live(page))) aria-current=[is_current.then_some("page")] {
                        (page.title().said_in(language))
                    }
                }
            }
            div.languages {
                @for other in Language::ALL {
                    @if other == language {
                        span aria-current="true" { (other.name()) }
                    } @else {
                        a lang=(other.tag()) href=(address.with(|asked| asked.language = Some(other))) {
                            (other.name())
                        }
                    }
                }
            }
        }
    }
}

/// What there is of a site.
fn parts(asking: &Asking<'_>, site: &str, current: SitePart) -> Markup {
    html! {
        nav.tabs aria-label=(asking.telling().say("Of this site", "このサイト")) {
            @for part in SitePart::all() {
                a href=(asking.address.to(Page::Site(site.to_owned(), part)))
                    aria-current=[(part == current).then_some("page")] {
                    (part.title().said_in(asking.language))
                }
            }
        }
    }
}

/// Which days are shown, and of what names.
fn range(asking: &Asking<'_>, from: i32, to: i32) -> Markup {
    let (address, telling) = (&asking.address, asking.telling());
    let today = asking.today();
    html! {
        form.range method="get" action=(address.path()) {
            p.presets {
                @for (days, name) in PRESETS {
                    @let first = today - days + 1;
                    @let is_current = (first, today) == (from, to);
                    @let link = address.with(|asked| (asked.from, asked.to) = (Some(first), Some(today)));
                    a href=(link) aria-current=[is_current.then_some("true")] {
                        (name.said_in(asking.language))
                    }
                }
            }
            label { (telling.say("from", "開始")) input type="date" name="from" value=(civil(from)); }
            label { (telling.say("to", "終了")) input type="date" name="to" value=(civil(to)); }
            (machine(asking))
            (filter(asking))
        }
    }
}

/// Whose figures are shown, where there is a choice.
fn machine(asking: &Asking<'_>) -> Markup {
    let choices = asking.choices();
    html! {
        @if !choices.is_empty() {
            label.wide {
                (asking.telling().say("of", "対象"))
                select name="machine" {
                    @for (machine, name) in choices {
                        option value=(report::harmless(machine.id())) selected[machine == asking.address.asked.machine] {
                            (report::harmless(&name))
                        }
                    }
                }
            }
        }
    }
}

/// Where names are given that are shown, and the end of a form.
fn filter(asking: &Asking<'_>) -> Markup {
    let (asked, telling) = (&asking.address.asked, asking.telling());
    html! {
        label.wide {
            (telling.say("names with", "名前の絞り込み"))
            input type="search" name="filter" value=(report::harmless(&asked.filter)) maxlength="100";
        }
        @if let Some(language) = asked.language {
            input type="hidden" name="lang" value=(language.tag());
        }
        @if !asked.cause.is_empty() {
            input type="hidden" name="cause" value=(report::harmless(&asked.cause));
        }
        @if !asked.seen.is_empty() {
            input type="hidden" name="page" value=(report::harmless(&asked.seen));
        }
        button { (telling.say("Show", "表示")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FigureStore;

    #[test]
    fn where_figures_lie_is_told_to_who_may_see_all() {
        let directory = testkit::TempDir::new();
        let path = directory.path().display().to_string();
        for (scope, is_told) in [(ConsoleScope::All, true), (ConsoleScope::default(), false)] {
            let question = ConsoleQuestion {
                scope,
                base: "/".into(),
                ..ConsoleQuestion::default()
            };
            let error = FigureStore::open_existing(directory.path()).expect_err("there are none");
            let why = NoPage::Unreadable(error);
            let answer = no_page(&question, Language::English, &why);
            assert_eq!((answer.status, answer.body.contains(&path)), (500, is_told));
        }
    }

    #[test]
    fn the_script_is_the_one_that_the_server_lets_run() {
        assert_eq!(hash(SCRIPT), ipc::console::SCRIPT_HASH);
    }
}
