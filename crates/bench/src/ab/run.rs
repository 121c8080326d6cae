//! Runs ApacheBench's load on our generator: plan, progress, the ways it may end early.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::figures::Figures;
use super::flags::Flags;
use super::refusal::{Refusal, refuse, refuse_plainly};
use super::report::Told;
use super::request::{Sent, host_field};
use super::target::{self, Target};
use super::{ending, extras, files, notes, report, tables, tls};
use load::client::{
    self, Address, End, Endpoint, Judge, Keep, Live, Opening, Outcome, Plan, ReplyTo, Request,
    Reuse, SocketOptions, Tls,
};

/// Fewer requests than this have no progress lines.
const PROGRESS_ABOVE: u64 = 150;

/// Progress is told at most so many times, and at most every so many requests.
const PROGRESS_LINES: u64 = 10;
const PROGRESS_STEP_MIN: u64 = 100;

/// How often the load is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Most exchanges kept for `-g`.
const EACH_MAX: u64 = 20_000_000;

/// Most exchanges kept for `-v`.
const TOLD_MAX: u64 = 100_000;

/// What is decided before anything is sent.
struct Load<'a> {
    flags: &'a Flags,
    target: Target,
    sent: Sent,
    proxy: Option<(String, u16)>,
    tls: Option<Tls>,
    /// Requests between two lines of progress, where it is told.
    step: Option<u64>,
}

/// Runs the load of a command line and prints its report.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Refusal> {
    let load = Load::new(flags)?;
    load.announce();
    let ended = load.run();
    if ended.is_err() && std::io::stdout().is_terminal() {
        // What is said on stderr would stand behind "be patient" otherwise.
        print("\n");
    }
    ended
}

impl<'a> Load<'a> {
    fn new(flags: &'a Flags) -> Result<Load<'a>, Refusal> {
        let target = Target::parse(&flags.url)?;
        if flags.each_file.is_some() && flags.requests > EACH_MAX {
            return refuse(format!(
                "-g keeps every request in memory, and {} are too many: at most {EACH_MAX}",
                flags.requests
            ));
        }
        let tls = match target.tls {
            true => Some(tls::asked(
                flags,
                host_field(flags).unwrap_or(&target.host),
            )?),
            false => None,
        };
        let told = flags.progress && flags.requests > PROGRESS_ABOVE;
        Ok(Load {
            flags,
            sent: Sent::new(flags, &target)?,
            tls,
            target,
            proxy: flags
                .proxy
                .as_deref()
                .map(target::parse_proxy)
                .transpose()?,
            step: told.then(|| (flags.requests / PROGRESS_LINES).max(PROGRESS_STEP_MIN)),
        })
    }

    /// Runs it and prints the report.
    fn run(&self) -> Result<ExitCode, Refusal> {
        let flags = self.flags;
        let plan = self.plan()?;
        extras::try_out(&flags.extras)?;
        let interrupted = interruptions()?;
        let watched = extras::watch(&flags.extras)?;
        let live = Live::new();
        let (outcome, stalled) = self.watched(&plan, &live, &interrupted);
        let outcome = outcome.map_err(|error| Refusal::plain(1, error.to_string()))?;
        let interrupted = interrupted.load(Ordering::Relaxed);
        print(&notes::statuses(flags, &outcome.each));
        if !interrupted {
            ending::check(flags, &outcome, stalled)?;
            self.tell_end(&outcome);
        }
        self.report(&outcome)?;
        let asked = (&plan, self.sent.method.as_str());
        print(&extras::report(flags, asked, &outcome, watched)?);
        Ok(ExitCode::from(u8::from(interrupted)))
    }

    /// What stands before the report.
    fn announce(&self) {
        let mut out = String::new();
        if self.flags.banner {
            out = match self.flags.html {
                Some(_) => tables::banner(),
                None => report::banner(),
            };
        }
        if self.flags.html.is_none() {
            let through = match &self.proxy {
                Some((host, port)) => format!("[through {host}:{port}] "),
                None => String::new(),
            };
            let end = if self.step.is_some() { "\n" } else { "..." };
            out += &format!(
                "Benchmarking {} {through}(be patient){end}",
                self.target.host
            );
        }
        if self.flags.verbosity >= 2 {
            let Sent { method, head, .. } = &self.sent;
            out += &format!("INFO: {method} header == \n---\n{head}\n---\n");
        }
        print(&out);
    }

    fn plan(&self) -> Result<Plan, Refusal> {
        let flags = self.flags;
        let local = flags
            .local
            .as_deref()
            .map(target::look_up_local)
            .transpose()?;
        let requests = vec![self.request(local)?];
        Ok(Plan {
            connections: flags.connections,
            threads: flags.threads.min(flags.connections),
            end: End {
                after: flags.time_limit,
                requests: Some(flags.requests),
            },
            opening: match flags.ramp_ms {
                Some(ms) => Opening::Ramp(
                    Duration::from_millis(ms).saturating_mul(flags.connections as u32),
                ),
                None => Opening::FirstAlone,
            },
            reuse: match flags.keep_alive {
                true => Reuse::Keep,
                false => Reuse::Close,
            },
            timeout: flags.timeout,
            deadline: None,
            judge: match flags.any_length {
                true => Judge::Nothing,
                false => Judge::SameLength,
            },
            keep: self.keep(),
            socket: SocketOptions {
                local: local.into_iter().collect(),
                buffer_bytes: flags.buffer_bytes,
            },
            ..Plan::new(requests)
        })
    }

    fn keep(&self) -> Keep {
        let most = match (&self.flags.each_file, self.flags.verbosity) {
            (Some(_), _) => EACH_MAX,
            (None, 2..) => TOLD_MAX,
            (None, _) => return Keep::Histograms,
        };
        // Cannot be cut: the most is below what any machine's numbers hold.
        Keep::Each(self.flags.requests.min(most) as usize)
    }

    fn request(&self, local: Option<IpAddr>) -> Result<Request, Refusal> {
        let Load { target, sent, .. } = self;
        let (host, port) = match &self.proxy {
            Some((host, port)) => (host.as_str(), *port),
            None => (target.host.as_str(), target.port),
        };
        let address: SocketAddr = target::look_up_server(host, port, local)?;
        let mut bytes = sent.head.clone().into_bytes();
        bytes.extend(&sent.body);
        Ok(Request {
            numbered: None,
            endpoint: Endpoint {
                address: Address::Tcp(address),
                tls: self.tls.clone(),
            },
            bytes,
            body_bytes: sent.body.len(),
            weight: 1,
            reply: match sent.method.as_str() {
                "HEAD" => ReplyTo::Head,
                _ => ReplyTo::Other,
            },
            patience: None,
            label: target.url.clone(),
        })
    }

    /// Runs it with somebody looking on. Says also whether nothing had come for `-s` seconds.
    fn watched(
        &self,
        plan: &Plan,
        live: &Live,
        interrupted: &AtomicBool,
    ) -> (Result<Outcome, load::Error>, bool) {
        std::thread::scope(|scope| {
            let (over, is_over) = channel();
            let watcher = scope.spawn(move || self.watch(live, interrupted, &is_over));
            let outcome = client::run(plan, live);
            drop(over);
            // Whoever looks on panics only if stderr is gone, and then nobody is to be told.
            (outcome, watcher.join().unwrap_or(false))
        })
    }

    fn watch(&self, live: &Live, interrupted: &AtomicBool, over: &Receiver<()>) -> bool {
        let mut told = 0;
        let mut last = (0, Instant::now());
        let mut stalled = false;
        while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            let look = live.look();
            told = self.tell(told, look.completed);
            if look.completed != last.0 {
                last = (look.completed, Instant::now());
            }
            stalled |= last.1.elapsed() > self.flags.timeout && look.broken > 0;
            if ending::is_near(self.flags, live.broken())
                || stalled
                || interrupted.load(Ordering::Relaxed)
            {
                live.stop();
            }
        }
        if !interrupted.load(Ordering::Relaxed) {
            self.tell(told, live.look().completed);
        }
        stalled
    }

    /// Tells of every step since `told`, and says how far it has told.
    fn tell(&self, told: u64, completed: u64) -> u64 {
        let Some(step) = self.step else {
            return completed;
        };
        let mut next = told / step * step + step;
        while next <= completed {
            eprintln!("Completed {next} requests");
            next += step;
        }
        completed.max(told)
    }

    fn tell_end(&self, outcome: &Outcome) {
        match self.step {
            Some(_) => eprintln!("Finished {} requests", outcome.completed),
            None => print("..done\n"),
        }
    }

    fn report(&self, outcome: &Outcome) -> Result<(), Refusal> {
        let flags = self.flags;
        let figures = Figures::of(outcome);
        let told = Told {
            flags,
            target: &self.target,
            first: outcome.first.as_ref(),
            tls_name: self
                .tls
                .as_ref()
                .filter(|tls| tls.sni)
                .map(|tls| tls.name.as_str()),
            figures: &figures,
        };
        let out = match &flags.html {
            Some(attributes) => tables::text(told, attributes),
            None => report::text(told) + &notes::text(told, outcome),
        };
        print(&out);
        if let Some(file) = flags.percentages_file.as_ref().filter(|_| figures.done > 0) {
            files::write_percentages(file, &figures)?;
        }
        if let Some(file) = flags.each_file.as_ref().filter(|_| figures.done > 0) {
            files::write_each(file, outcome.each.clone(), outcome.started)?;
        }
        Ok(())
    }
}

/// Set by Ctrl-C, or when we are told to end; the second time the process ends at once.
fn interruptions() -> Result<Arc<AtomicBool>, Refusal> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let at_once =
            signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone());
        let flagged =
            at_once.and_then(|_| signal_hook::flag::register(signal, interrupted.clone()));
        if let Err(error) = flagged {
            return refuse_plainly(1, format!("take notice of Ctrl-C: {error}"));
        }
    }
    Ok(interrupted)
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
