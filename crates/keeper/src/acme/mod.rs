//! The acme process: it asks authorities for the certificates of a plan, each when it is due.
//!
//! The idea: the supervisor says what is wanted and what there is ([`Plan`]); what remains is time
//! and talk. Orders run beside each other on one thread, a bounded number; [`schedule`] says when one
//! is due, [`brake`] how many may leave at once, [`order`] is one of them from end to end. Whatever is
//! to outlive this process is the supervisor's: it has a key made for a request, and writes the store.
//! So this process opens no file but those of authorities it is to believe, and may die at any time.

mod brake;
mod client;
mod demand;
mod link;
mod order;
mod rehearsal;
mod schedule;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use config::reason;
use instant_acme::{AccountCredentials, CertificateIdentifier, ExternalAccountKey, NewAccount};
use ipc::acme::{Account, FromAcme, Held, ORDER_NAMES_MAX, Plan, ToAcme, Wanted};
use ipc::certificates::Blob;
use ipc::message::Message;
use ipc::server::CHALLENGES_MAX;
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;

use brake::Brake;
use client::Client;
use demand::{Spending, budgets, first_account};
use link::Link;
use order::{NotIssued, Order, insist};
use schedule::{Course, Window};

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Orders under way at once.
const ORDERS_MAX: usize = 20;
/// Names of orders under way: the server shows a proof for each, and for each name of a rehearsal.
const NAMES_MAX: usize = CHALLENGES_MAX / 2 - rehearsal::REHEARSALS_MAX * ORDER_NAMES_MAX;
/// The longest wait without a look at the clock: it may be set.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Messages of the supervisor that wait to be read.
const MESSAGES_MAX: usize = 16;
/// How often an authority's suggestion is asked for: no oftener, and no more seldom.
const SUGGESTION_LEAST_S: i64 = 3_600;
const SUGGESTION_MOST_S: i64 = 24 * 3_600;
/// When it is asked for again where there is none.
const NO_SUGGESTION_S: i64 = 6 * 3_600;

/// Sees to certificates until the supervisor has gone: the life of the process.
#[must_use]
pub fn run(user: &str) -> ExitCode {
    let dropped = os::confine::bar_capabilities().and_then(|()| os::process::drop_privileges(user));
    error_log::start("acme");
    os::process::set_name("nagaya-acme");
    let served = dropped.and_then(|()| {
        let link = os::process::take_stdin()?;
        os::process::die_with_parent(&link)?;
        serve(link)
    });
    if let Err(error) = &served {
        tracing::error!(error = reason(error), "the acme process cannot go on");
    }
    error_log::flush(FLUSH);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Sees to what the supervisor says over this link, until its end.
fn serve(link: OwnedFd) -> io::Result<()> {
    let read = link.try_clone()?;
    let (heard, messages) = mpsc::channel(MESSAGES_MAX);
    let reader = std::thread::Builder::new().name("link".into());
    reader.spawn(move || {
        while let Ok(message) = ToAcme::recv(read.as_fd()) {
            if heard.blocking_send(message).is_err() {
                return;
            }
        }
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let orders = Rc::new(Orders::new(Link::new(link)?));
    local.block_on(&runtime, orders.work(messages));
    Ok(())
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// An account that orders can be made with.
#[derive(Clone)]
struct Ready {
    account: instant_acme::Account,
    client: Client,
}

/// What is wanted, and how it goes.
struct Orders {
    link: Rc<Link>,
    state: RefCell<OrdersState>,
    /// One account is made at a time.
    making: tokio::sync::Mutex<()>,
    /// A permit for each rehearsal under way.
    rehearsals: tokio::sync::Semaphore,
}

#[derive(Default)]
struct OrdersState {
    plan: Plan,
    courses: HashMap<String, Course>,
    /// When each certificate's suggestion is asked for next.
    suggestions: HashMap<String, i64>,
    ready: HashMap<String, Ready>,
    under_way: HashSet<String>,
    /// Certificates that are rehearsed, or wait for it.
    rehearsing: HashSet<String>,
    brake: Brake,
    spending: Spending,
}

/// What an order needs of the plan.
struct Errand {
    wanted: Wanted,
    account: Account,
    /// Whether it goes to the authority that is preferred.
    is_first: bool,
    names: Vec<String>,
}

impl Orders {
    fn new(link: Rc<Link>) -> Orders {
        Orders {
            link,
            state: RefCell::default(),
            making: tokio::sync::Mutex::default(),
            rehearsals: tokio::sync::Semaphore::new(rehearsal::REHEARSALS_MAX),
        }
    }

    async fn work(self: Rc<Self>, mut messages: mpsc::Receiver<ToAcme>) {
        let (done, mut ended) = mpsc::channel(ORDERS_MAX);
        loop {
            let wait = self.start_what_is_due(&done);
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => {
                        self.hear(message);
                        // What has come with it is heard before anything else.
                        let more = std::iter::from_fn(|| messages.try_recv().ok());
                        more.take(MESSAGES_MAX).for_each(|message| self.hear(message));
                    }
                    None => return,
                },
                certificate = ended.recv() => {
                    if let Some(certificate) = certificate {
                        self.state.borrow_mut().under_way.remove(&certificate);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn hear(self: &Rc<Self>, message: ToAcme) {
        match self.link.answer(message) {
            Some(ToAcme::Plan(plan)) => self.take(plan),
            Some(ToAcme::Demand(wanted)) => self.take_demand(wanted),
            Some(ToAcme::Renew { certificate }) => {
                let mut state = self.state.borrow_mut();
                state.courses.entry(certificate).or_default().want_now();
            }
            Some(ToAcme::Rehearse { certificate }) => self.rehearse(&certificate),
            _ => {}
        }
    }

    /// Takes a plan; what is known of certificates that stay, stays.
    fn take(&self, plan: Plan) {
        let state = &mut *self.state.borrow_mut();
        let before = std::mem::replace(&mut state.plan, plan);
        let plan = &state.plan;
        let same = |name: &String| {
            let of = |plan: &Plan| plan.accounts.iter().find(|it| it.name == *name).cloned();
            of(&before) == of(plan)
        };
        state.ready.retain(|name, _| same(name));
        let mut courses = std::mem::take(&mut state.courses);
        state.spending.learn(plan, &courses);
        state.courses = plan
            .certificates
            .iter()
            .map(|wanted| {
                let course = courses.remove(&wanted.certificate);
                let mut course = course.unwrap_or_default();
                course.keep_names(&wanted.names);
                (wanted.certificate.clone(), course)
            })
            .collect();
        let courses = &state.courses;
        state
            .suggestions
            .retain(|name, _| courses.contains_key(name));
        for wanted in &state.plan.certificates {
            let course = courses.get(&wanted.certificate);
            // Where another machine orders there is nothing to tell.
            if course.is_some_and(|it| authority(&state.plan, wanted, it).is_some()) {
                self.tell_state(&state.plan.accounts, courses, wanted);
            }
        }
    }

    /// Says how it goes with a certificate.
    fn tell_state(&self, accounts: &[Account], courses: &HashMap<String, Course>, wanted: &Wanted) {
        if let Some(course) = courses.get(&wanted.certificate) {
            let next_s = demand::next_s(wanted, course, budgets(accounts, wanted), now_s());
            let next_s = if next_s == i64::MAX { 0 } else { next_s };
            let told = course.state(&wanted.certificate, next_s);
            self.link.tell(FromAcme::State(told));
        }
    }

    /// Starts every order that is due, and tells for how long there is none.
    fn start_what_is_due(self: &Rc<Self>, done: &mpsc::Sender<String>) -> Duration {
        let now_s = now_s();
        let mut next_s = i64::MAX;
        let state = &mut *self.state.borrow_mut();
        let mut refused = Vec::new();
        let mut new_under_way = demand::under_way(&state.plan, &state.under_way, now_s);
        let mut names_under_way = demand::names_under_way(&state.plan, &state.under_way);
        for wanted in demand::in_turn(&state.plan, now_s) {
            let certificate = &wanted.certificate;
            let is_full = state.under_way.len() >= demand::places(&state.plan, wanted)
                || names_under_way + wanted.names.len() > NAMES_MAX;
            if is_full || state.under_way.contains(certificate) {
                continue;
            }
            let Some(course) = state.courses.get_mut(certificate) else {
                continue;
            };
            let Some((account, is_first)) = authority(&state.plan, wanted, course) else {
                continue;
            };
            let budgets = budgets(&state.plan.accounts, wanted);
            let due_s = demand::next_s(wanted, course, budgets, now_s);
            let asked_s = state.suggestions.get(certificate).copied().unwrap_or(0);
            let asks = wanted.held.is_some() && is_first && due_s < i64::MAX;
            if due_s > now_s && asks && asked_s <= now_s {
                state.under_way.insert(certificate.clone());
                let next_s = now_s + NO_SUGGESTION_S;
                state.suggestions.insert(certificate.clone(), next_s);
                self.spawn_suggestion(wanted.clone(), account.clone(), done.clone());
                continue;
            }
            let names = course.names(&wanted.names, now_s);
            let is_new = due_s <= now_s && demand::is_new(wanted, now_s);
            let first = first_account(&state.plan.accounts, wanted).filter(|_| is_new);
            if let Some(Err(why)) = first.map(|it| state.spending.check(it, wanted, now_s)) {
                refused.push((certificate.clone(), why));
                continue;
            }
            if is_new && new_under_way >= demand::ORDERS_MAX {
                continue;
            }
            let brake = &mut state.brake;
            let allowed = match (due_s <= now_s, names.is_empty()) {
                (false, _) => Err(due_s),
                (true, true) => Err(course.first_name_s()),
                (true, false) => brake.pass(&account.name, &names, now_s),
            };
            if let Err(until_s) = allowed {
                next_s = next_s.min(until_s);
                next_s = if asks { next_s.min(asked_s) } else { next_s };
                continue;
            }
            course.begin(now_s);
            if let Some(first) = first {
                state.spending.note(first, wanted, now_s);
                new_under_way += 1;
            }
            names_under_way += wanted.names.len();
            state.under_way.insert(certificate.clone());
            let errand = Errand {
                names: names.into_iter().cloned().collect(),
                wanted: wanted.clone(),
                account: account.clone(),
                is_first,
            };
            self.spawn_order(errand, done.clone());
        }
        self.refuse(state, refused);
        let wait_s = u64::try_from(next_s.saturating_sub(now_s)).unwrap_or(0);
        Duration::from_secs(wait_s.max(1)).min(LOOK_MAX)
    }

    fn spawn_order(self: &Rc<Self>, errand: Errand, done: mpsc::Sender<String>) {
        let orders = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let outcome = orders.order(&errand).await;
            let certificate = errand.wanted.certificate.clone();
            orders.conclude(&errand, outcome);
            let _ = done.send(certificate).await;
        });
    }

    async fn order(&self, errand: &Errand) -> Result<Held, NotIssued> {
        let Errand {
            wanted, account, ..
        } = errand;
        let certificate = &wanted.certificate;
        let names = errand.names.join(" ");
        tracing::info!(certificate, account = account.name, names, "ordered");
        let ready = self.ready(account).await.map_err(|error| match error {
            NotIssued::Whole(why) => NotIssued::Whole(format!("account {}: {why}", account.name)),
            names @ NotIssued::Names(_) => names,
        })?;
        let begun = wanted.order.as_ref();
        let begun = begun.filter(|(of, _)| *of == account.name);
        let is_suggested = self.is_suggested(certificate);
        let replaces = wanted
            .held
            .as_ref()
            .filter(|_| errand.is_first && is_suggested);
        let order = Order {
            link: &self.link,
            account: &ready.account,
            account_name: &account.name,
            challenges: &account.challenges,
            profile: account.profile.as_deref(),
            certificate,
            names: errand.names.clone(),
            failures: self.failures(errand),
            begun: begun.map(|(_, url)| url.clone()),
            replaces: replaces.and_then(identifier_of),
        };
        order.run().await
    }

    fn failures(&self, errand: &Errand) -> Vec<u32> {
        let state = self.state.borrow();
        let course = state.courses.get(&errand.wanted.certificate);
        let of = |name: &String| course.map_or(0, |course| course.failures_of(name));
        errand.names.iter().map(of).collect()
    }

    fn is_suggested(&self, certificate: &str) -> bool {
        let state = self.state.borrow();
        let course = state.courses.get(certificate);
        course.is_some_and(Course::is_suggested)
    }

    /// Notes how an order ended, and says it.
    fn conclude(&self, errand: &Errand, outcome: Result<Held, NotIssued>) {
        let certificate = &errand.wanted.certificate;
        let now_s = now_s();
        let state = &mut *self.state.borrow_mut();
        let client = state.ready.get(&errand.account.name);
        let asked_s = client.map_or(0, |ready| ready.client.take_rest_s());
        let wanted = state.plan.certificates.iter_mut();
        let wanted = wanted.into_iter().find(|it| it.certificate == *certificate);
        let (Some(wanted), Some(course)) = (wanted, state.courses.get_mut(certificate)) else {
            return;
        };
        wanted.order = None;
        let is_new = demand::is_new(wanted, now_s);
        match outcome {
            Ok(held) => {
                course.succeed(&errand.names);
                state.suggestions.remove(certificate);
                tracing::info!(certificate, valid_until_s = held.not_after_s, "issued");
                wanted.held = Some(held);
            }
            Err(NotIssued::Names(names)) => {
                for (name, why) in names {
                    tracing::error!(certificate, name, "left out, it does not validate: {why}");
                    course.leave_out(&name, now_s, why);
                }
            }
            Err(NotIssued::Whole(why)) => {
                tracing::error!(certificate, account = errand.account.name, "failed: {why}");
                course.fail(now_s, asked_s, why);
            }
        }
        let name = wanted.names.first().map_or("", String::as_str);
        if let Some((_, why)) = course.rest(name, now_s).filter(|_| is_new) {
            self.tell_refused(certificate, why.to_owned(), false);
        }
        self.tell_state(&state.plan.accounts, &state.courses, wanted);
    }

    /// The account, made or found again when it is first needed.
    async fn ready(&self, account: &Account) -> Result<Ready, NotIssued> {
        let _one = self.making.lock().await;
        if let Some(ready) = self.state.borrow().ready.get(&account.name) {
            return Ok(ready.clone());
        }
        let client = Client::start(account);
        let builder = || instant_acme::Account::builder_with_http(Box::new(client.clone()));
        let known = account.credentials.as_ref();
        let known =
            known.and_then(|json| serde_json::from_slice::<AccountCredentials>(&json.0).ok());
        let made = match known {
            Some(known) => builder().from_credentials(known).await?,
            None => self.make(account, &client).await?,
        };
        let ready = Ready {
            account: made,
            client,
        };
        let name = account.name.clone();
        self.state.borrow_mut().ready.insert(name, ready.clone());
        Ok(ready)
    }

    /// Makes an account, and has it kept.
    async fn make(
        &self,
        account: &Account,
        client: &Client,
    ) -> Result<instant_acme::Account, NotIssued> {
        let (made, credentials) = self.create(account, client).await?;
        let json = serde_json::to_vec(&credentials).map_err(|error| error.to_string())?;
        self.link.tell(FromAcme::Account {
            account: account.name.clone(),
            credentials: Blob::from(json),
        });
        tracing::info!(account = account.name, id = made.id(), "account made");
        Ok(made)
    }

    async fn create(
        &self,
        account: &Account,
        client: &Client,
    ) -> Result<(instant_acme::Account, AccountCredentials), NotIssued> {
        let contact: Vec<&str> = account.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let binding = match &account.binding {
            Some(binding) => {
                let key = BASE64_URL_SAFE_NO_PAD.decode(binding.key.trim_end_matches('='));
                let key = key.map_err(|_| "the key of `eab` is not base64url".to_owned())?;
                Some(ExternalAccountKey::new(binding.id.clone(), &key))
            }
            None => None,
        };
        let created = insist(async || {
            let builder = instant_acme::Account::builder_with_http(Box::new(client.clone()));
            let directory = account.directory.clone();
            builder.create(&new, directory, binding.as_ref()).await
        });
        Ok(created.await?)
    }

    fn spawn_suggestion(
        self: &Rc<Self>,
        wanted: Wanted,
        account: Account,
        done: mpsc::Sender<String>,
    ) {
        let orders = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let suggested = orders.suggestion(&wanted, &account).await;
            if let Some((window, again_s)) = suggested {
                let state = &mut *orders.state.borrow_mut();
                let certificate = wanted.certificate.clone();
                if let Some(course) = state.courses.get_mut(&certificate) {
                    course.suggest(window);
                    state.suggestions.insert(certificate, now_s() + again_s);
                    orders.tell_state(&state.plan.accounts, &state.courses, &wanted);
                }
            }
            let _ = done.send(wanted.certificate).await;
        });
    }

    /// When the authority wants a certificate to be renewed, and when it is to be asked again.
    async fn suggestion(&self, wanted: &Wanted, account: &Account) -> Option<(Window, i64)> {
        // Who has no account yet has issued nothing.
        let is_made = self.state.borrow().ready.contains_key(&account.name);
        if !is_made && account.credentials.is_none() {
            return None;
        }
        let identifier = identifier_of(wanted.held.as_ref()?)?;
        let ready = self.ready(account).await.ok()?;
        let (info, again) = ready.account.renewal_info(&identifier).await.ok()?;
        let window = Window {
            start_s: info.suggested_window.start.unix_timestamp(),
            end_s: info.suggested_window.end.unix_timestamp(),
        };
        let again_s = i64::try_from(again.as_secs()).unwrap_or(i64::MAX);
        Some((window, again_s.clamp(SUGGESTION_LEAST_S, SUGGESTION_MOST_S)))
    }
}

/// The account whose turn it is, of those that may order here, and whether it is the first one.
fn authority<'a>(plan: &'a Plan, wanted: &Wanted, course: &Course) -> Option<(&'a Account, bool)> {
    let of = |index: &u16| plan.accounts.get(usize::from(*index));
    // The certificate lies in the store of the first, and who may not write there orders nothing.
    wanted
        .accounts
        .first()
        .and_then(of)
        .filter(|it| it.is_writer)?;
    let accounts: Vec<&Account> = wanted.accounts.iter().filter_map(of).collect();
    let writers: Vec<&Account> = accounts.into_iter().filter(|it| it.is_writer).collect();
    let turn = course.authority(writers.len());
    writers.get(turn).map(|account| (*account, turn == 0))
}

fn identifier_of(held: &Held) -> Option<CertificateIdentifier<'static>> {
    let leaf = CertificateDer::from(held.leaf.0.to_vec());
    let identifier = CertificateIdentifier::try_from(&leaf).ok()?;
    Some(identifier.into_owned())
}
