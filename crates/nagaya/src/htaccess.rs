//! `nagaya htaccess …`: what `.htaccess` files say of a request, line by line; and for `check` what of
//! them is not obeyed.
//!
//! The files are read here and now, as the server would: the running gateway is not asked.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use clap::{Args, Subcommand};
use config::model::{Model, PoolProgram, Site};
use config::reason;
use engine::htaccess::explain::{Round, explain};
use engine::htaccess::survey::{Surveyed, sections, survey};
use supervisor::load::load;

use crate::outcome::{Outcome, complain, print, wrong_config};
use crate::paths::as_server;

/// Doubts that are told one by one.
const DOUBTS_MAX: usize = 200;

/// What to do with `.htaccess` files.
#[derive(Debug, Subcommand)]
pub(crate) enum HtaccessCommand {
    /// Say what they do to a request: each file, each line that is looked at, and what comes of it
    #[command(after_help = "\
Examples:
  nagaya htaccess explain http://example.jp/2026/11/a-post/
  nagaya htaccess explain https://example.jp/admin/ --client 203.0.113.7 -H 'Cookie: plan=gold'
Nothing is served. Who is asked for a password is nobody. Exit status: 0 it could be explained,
1 its files cannot be read, 2 no site has that host, or it has no `htaccess`.")]
    Explain(ExplainOptions),
}

/// Options of `htaccess explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// The URL
    #[arg(value_name = "URL")]
    url: String,
    /// The method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A field of the request, as often as there are fields
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    client: IpAddr,
}

/// Explains.
pub(crate) fn run(config: &Path, command: &HtaccessCommand) -> Outcome {
    let HtaccessCommand::Explain(options) = command;
    let model = match load(config) {
        Ok(loaded) => loaded.model,
        Err(problems) => return wrong_config(&problems),
    };
    let Some((is_tls, head)) = head(options) else {
        complain("nagaya: a URL begins with http:// or https://\n");
        return Outcome::Wrong;
    };
    // What root may read the server need not.
    let asked = (is_tls, options.client);
    let explained = as_server(&model, || explain(&model, head.as_bytes(), asked));
    match explained.unwrap_or_else(|error| Err(reason(&error))) {
        Ok(rounds) => print(page(&rounds).as_bytes()),
        Err(why) => {
            complain(&format!("nagaya: explain {}: {why}\n", options.url));
            Outcome::Wrong
        }
    }
}

/// The head of the request as a client would send it.
fn head(options: &ExplainOptions) -> Option<(bool, String)> {
    let url = &options.url;
    let plain = url.strip_prefix("http://").map(|rest| (false, rest));
    let (is_tls, rest) = plain.or_else(|| Some((true, url.strip_prefix("https://")?)))?;
    let rest = rest.split('#').next().unwrap_or(rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(at);
    let slash = if target.starts_with('/') { "" } else { "/" };
    let method = &options.method;
    let mut head = format!("{method} {slash}{target} HTTP/1.1\r\nHost: {host}\r\n");
    for field in &options.fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    Some((is_tls, head))
}

fn page(rounds: &[Round]) -> String {
    let mut page = String::new();
    let text = String::from_utf8_lossy;
    for round in rounds {
        let _ = writeln!(page, "{}  ({})", text(&round.uri), text(&round.filename));
        if round.files.is_empty() {
            page.push_str("  no .htaccess file holds for it, and no section\n");
        }
        for (file, problems) in &round.files {
            let _ = writeln!(page, "  {file}");
            for problem in problems {
                let what = if problem.refuses {
                    "refuses"
                } else {
                    "is left out"
                };
                let _ = writeln!(page, "    line {} {what}: {}", problem.line, problem.text);
            }
        }
        let mut last = None;
        for (file, line) in &round.lines {
            if file != last.unwrap_or(&None) {
                let _ = writeln!(page, "  in {}:", file.as_deref().unwrap_or_default());
            }
            last = Some(file);
            let _ = writeln!(page, "  {:>5}  {}", line.line, line.text);
        }
        let _ = writeln!(page, "  {}", round.ending);
    }
    page
}

/// Whether pages of a site run in a pool.
fn has_pool(model: &Model, site: &Site) -> bool {
    let rules = site.rules.iter();
    let mut pools = rules.filter_map(|rule| model.pools.get(rule.handler.as_ref()?.pool()?));
    pools.any(|pool| matches!(pool.program, PoolProgram::Php(_)))
}

/// What of the files of all sites that let them count is not obeyed, a line each.
pub(crate) fn doubts(model: &Model) -> Vec<String> {
    let sites = model.sites.iter().filter(|site| site.obeys_files());
    let files = sites.flat_map(|site| {
        // What is wrong with sections is told beside their lines.
        let sections = sections(site).into_iter().map(|it| Surveyed {
            problems: Vec::new(),
            ..it
        });
        let files = survey(site).into_iter().chain(sections);
        files.map(move |file| (site, file))
    });
    let files: Vec<(&Site, Surveyed)> = files.collect();
    let look = || {
        let troubles = files.iter().map(|(site, file)| file.troubles(site));
        troubles.collect::<Vec<_>>()
    };
    let troubles = as_server(model, look).unwrap_or_default();
    let mut troubles = troubles.into_iter();
    let mut doubts = Vec::new();
    for (site, file) in &files {
        let name = file.path.display();
        let (unreadable, user_files) = troubles.next().unwrap_or_default();
        if let Some(why) = unreadable {
            doubts.push(format!(
                "{name}: cannot be read, and refuses all below it: {why}"
            ));
        }
        let of_users = user_files.iter();
        doubts.extend(of_users.map(|why| format!("{name}: {why}")));
        for problem in &file.problems {
            let refuses = if problem.refuses {
                " (refuses what it covers)"
            } else {
                ""
            };
            doubts.push(format!(
                "{name}:{}: {}{refuses}",
                problem.line, problem.text
            ));
        }
        if file.sets_php && !has_pool(model, site) {
            let message = "settings of PHP are not obeyed: php-fpm that others run would keep them";
            doubts.push(format!("{name}: {message}"));
        }
    }
    let more = doubts.len().saturating_sub(DOUBTS_MAX);
    doubts.truncate(DOUBTS_MAX);
    if more > 0 {
        doubts.push(format!(
            "{more} lines more of .htaccess files are not obeyed"
        ));
    }
    doubts
}
