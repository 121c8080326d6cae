//! One order, from its beginning to a certificate that is stored.
//!
//! The idea: what can be tried again is (an authority may refuse every nonce it gave), what a run
//! before this one had begun is looked at first, and a failure says whose it is: that of
//! some names, which are left out next time, or that of the whole.

use std::rc::Rc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    Identifier, KeyAuthorization, NewOrder, OrderStatus, Problem,
};
use ipc::acme::{ChallengeKind, FromAcme, Held, Proof};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::link::{Link, Published};

/// How often something is asked whose nonce is refused; each time is three times already.
const NONCE_TRIES_MAX: u32 = 60;
/// How long an authority may take to look, or to sign.
const PATIENCE: Duration = Duration::from_secs(300);
/// The first wait between two looks, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(200);
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// What is to be ordered.
pub(super) struct Order<'a> {
    pub(super) link: &'a Rc<Link>,
    pub(super) account: &'a Account,
    /// The account's name in the configuration.
    pub(super) account_name: &'a str,
    pub(super) challenges: &'a [ChallengeKind],
    pub(super) profile: Option<&'a str>,
    pub(super) certificate: &'a str,
    pub(super) names: Vec<String>,
    /// How often each of them failed lately: each time it is the next challenge's turn.
    pub(super) failures: Vec<u32>,
    /// The URL of an order that was begun.
    pub(super) begun: Option<String>,
    /// The certificate that it replaces, for an authority that wants to know.
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
}

/// Why there is no certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotIssued {
    /// These names do not validate, each with why.
    Names(Vec<(String, String)>),
    /// Nothing that is a name's.
    Whole(String),
}

/// Names that are not shown, each with why.
type Failed = Vec<(String, String)>;

/// A name whose proof is shown, for as long as this is kept.
struct Shown {
    name: String,
    kind: ChallengeKind,
    _published: Published,
}

impl From<Error> for NotIssued {
    fn from(error: Error) -> NotIssued {
        if let Error::Api(problem) = &error {
            let names = refused_names(problem);
            if !names.is_empty() {
                return NotIssued::Names(names);
            }
        }
        NotIssued::Whole(error.to_string())
    }
}

impl From<String> for NotIssued {
    fn from(why: String) -> NotIssued {
        NotIssued::Whole(why)
    }
}

/// The names that a problem is about (RFC 8555, 6.7.1).
fn refused_names(problem: &Problem) -> Vec<(String, String)> {
    let refused = problem.subproblems.iter().filter_map(|sub| {
        let name = sub.identifier.as_ref()?.authorized(false).to_string();
        let why = sub.detail.clone().or_else(|| problem.detail.clone());
        Some((name, why.unwrap_or_default()))
    });
    refused.collect()
}

/// Asks until the authority takes the nonce that it gave itself.
pub(super) async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut tries = 1;
    loop {
        match ask().await {
            Err(Error::Api(problem)) if is_bad_nonce(&problem) && tries < NONCE_TRIES_MAX => {
                tries += 1;
            }
            answer => return answer,
        }
    }
}

fn is_bad_nonce(problem: &Problem) -> bool {
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce")
}

/// Waits between two looks, longer each time, until patience ends.
struct Looks {
    wait: Duration,
    until: Instant,
}

impl Looks {
    fn begin() -> Looks {
        Looks {
            wait: FIRST_LOOK,
            until: Instant::now() + PATIENCE,
        }
    }

    async fn next(&mut self, what: &str) -> Result<(), NotIssued> {
        if Instant::now() >= self.until {
            let waited_s = PATIENCE.as_secs();
            let why = format!("the authority has not {what} within {waited_s} s");
            return Err(NotIssued::Whole(why));
        }
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LONGEST_LOOK);
        Ok(())
    }
}

impl Order<'_> {
    /// Has it issued and stored.
    pub(super) async fn run(mut self) -> Result<Held, NotIssued> {
        if let Some(held) = self.resume().await {
            return held;
        }
        let mut order = self.begin().await?;
        // The next run goes on with it, and need not order again.
        self.link.tell(FromAcme::Ordered {
            certificate: self.certificate.to_owned(),
            account: self.account_name.to_owned(),
            url: order.url().to_owned(),
        });
        self.validate(&mut order).await?;
        let chain = self.finish(&mut order).await?;
        Ok(self.link.store(self.certificate, chain).await?)
    }

    /// Has the names validated, and nothing more.
    pub(super) async fn rehearse(mut self) -> Result<(), NotIssued> {
        let mut order = self.begin().await?;
        self.validate(&mut order).await
    }

    /// Goes on with what a run before this one had begun, where that can be done.
    async fn resume(&mut self) -> Option<Result<Held, NotIssued>> {
        let url = self.begun.take()?;
        let mut order = insist(async || self.account.order(url.clone()).await)
            .await
            .ok()?;
        let status = order.state().status;
        if status == OrderStatus::Invalid {
            return None;
        }
        tracing::info!(
            certificate = self.certificate,
            "an order goes on where it was left"
        );
        if status == OrderStatus::Pending
            && let Err(why) = self.validate(&mut order).await
        {
            return Some(Err(why));
        }
        let finished = self.finish(&mut order).await;
        let stored = match finished {
            Ok(chain) => self.link.store(self.certificate, chain).await,
            Err(NotIssued::Whole(why)) => Err(why),
            Err(NotIssued::Names(_)) => return None,
        };
        if let Err(why) = &stored {
            let certificate = self.certificate;
            tracing::warn!(certificate, error = why, "it is ordered anew");
        }
        stored.ok().map(Ok)
    }

    async fn begin(&mut self) -> Result<instant_acme::Order, NotIssued> {
        let identifiers: Vec<Identifier> = self.names.iter().map(|name| identifier(name)).collect();
        if let Some(profile) = self.profile
            && self.account.profiles().all(|known| known.name != profile)
        {
            let known: Vec<_> = self.account.profiles().map(|known| known.name).collect();
            let known = known.join(", ");
            let why = format!("the authority has no profile {profile}; it has: {known}");
            return Err(NotIssued::Whole(why));
        }
        let new = || {
            let new = NewOrder::new(&identifiers);
            match self.profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        if let Some(replaces) = self.replaces.take() {
            let ordered = insist(async || {
                let new = new().replaces(replaces.clone());
                self.account.new_order(&new).await
            });
            match ordered.await {
                Ok(order) => return Ok(order),
                // It may be replaced already, or issued by another account.
                Err(error) => tracing::debug!(%error, "ordered without saying what it replaces"),
            }
        }
        Ok(insist(async || self.account.new_order(&new()).await).await?)
    }

    /// Shows the authority that the names are ours.
    async fn validate(&self, order: &mut instant_acme::Order) -> Result<(), NotIssued> {
        insist(async || {
            let mut all = order.authorizations();
            while let Some(authorization) = all.next().await {
                authorization?;
            }
            Ok(())
        })
        .await?;
        let (shown, mut failed) = self.show(order).await?;
        for published in &shown {
            self.have_looked(order, published).await?;
        }
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let mut authorization = authorization?;
            let name = authorization.identifier().to_string();
            if failed.iter().any(|(known, _)| *known == name) {
                continue;
            }
            if let Some(why) = judged(&mut authorization).await? {
                failed.push((name, why));
            }
        }
        drop(shown);
        match failed.is_empty() {
            true => Ok(()),
            false => Err(NotIssued::Names(failed)),
        }
    }

    /// Shows the proof of every name that the authority does not know for ours, all at the same
    /// time; tells those that are shown, and those that cannot be, with why.
    async fn show(&self, order: &mut instant_acme::Order) -> Result<(Vec<Shown>, Failed), Error> {
        let mut failed = Vec::new();
        let mut asked = JoinSet::new();
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let authorization = authorization?;
            let name = authorization.identifier().to_string();
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let (kind, proof) = match self.choose(&name, authorization) {
                Ok(chosen) => chosen,
                Err(why) => {
                    failed.push((name, why));
                    continue;
                }
            };
            let (link, certificate) = (Rc::clone(self.link), self.certificate.to_owned());
            asked.spawn_local(async move {
                let published = link.publish(&certificate, &name, proof).await;
                (name, kind, published)
            });
        }
        let mut shown = Vec::new();
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((name, kind, Ok(published))) => shown.push(Shown {
                    name,
                    kind,
                    _published: published,
                }),
                Ok((name, _, Err(why))) => failed.push((name, why)),
                Err(error) => tracing::error!(%error, "a name is not shown"),
            }
        }
        Ok((shown, failed))
    }

    /// The challenge whose turn it is for a name, and what answers it.
    fn choose(
        &self,
        name: &str,
        authorization: AuthorizationHandle<'_>,
    ) -> Result<(ChallengeKind, Proof), String> {
        let offered = |kind: &&ChallengeKind| {
            let wanted = challenge_type(**kind);
            let mut offered = authorization.challenges.iter();
            offered.any(|challenge| challenge.r#type == wanted)
        };
        let kinds: Vec<_> = self.challenges.iter().filter(offered).collect();
        let place = self.names.iter().position(|known| known == name);
        let failures = place.and_then(|place| self.failures.get(place));
        let turn = failures.map_or(0, |failures| *failures as usize % kinds.len().max(1));
        let kind = kinds.get(turn);
        let kind = **kind.ok_or("the authority offers none of the configured challenges for it")?;
        // What a challenge borrows, it borrows for as long as that lives.
        let mut authorization = authorization;
        let challenge = authorization
            .challenge(challenge_type(kind))
            .ok_or("the authority has taken the challenge back")?;
        let proof = proof(kind, &challenge.token, &challenge.key_authorization())?;
        Ok((kind, proof))
    }

    /// Has the authority look at what is shown.
    async fn have_looked(
        &self,
        order: &mut instant_acme::Order,
        shown: &Shown,
    ) -> Result<(), Error> {
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let mut authorization = authorization?;
            let name = authorization.identifier().to_string();
            if name != shown.name {
                continue;
            }
            let challenge = authorization.challenge(challenge_type(shown.kind));
            let Some(mut challenge) = challenge else {
                continue;
            };
            // Whether it was heard is seen by what becomes of the authorization.
            if let Err(error) = insist(async || challenge.set_ready().await).await {
                tracing::debug!(name, %error, "a challenge is not taken");
            }
        }
        Ok(())
    }

    /// From an order that may be finished to a chain in PEM.
    async fn finish(&self, order: &mut instant_acme::Order) -> Result<String, NotIssued> {
        let mut looks = Looks::begin();
        while order.state().status == OrderStatus::Pending {
            looks.next("taken the proofs").await?;
            insist(async || order.refresh().await.map(drop)).await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = self.link.request(self.certificate, &self.names).await?;
            insist(async || order.finalize_csr(&request.0).await).await?;
        }
        let mut looks = Looks::begin();
        while matches!(
            order.state().status,
            OrderStatus::Ready | OrderStatus::Processing
        ) {
            looks.next("signed").await?;
            insist(async || order.refresh().await.map(drop)).await?;
        }
        let chain = insist(async || order.certificate().await).await?;
        chain.ok_or_else(|| NotIssued::Whole("the authority has no certificate yet".to_owned()))
    }
}

/// Waits for what an authority says of a name; why it doesn't believe, where it doesn't.
async fn judged(authorization: &mut AuthorizationHandle<'_>) -> Result<Option<String>, NotIssued> {
    let mut looks = Looks::begin();
    while authorization.status == AuthorizationStatus::Pending {
        looks.next("looked").await?;
        insist(async || authorization.refresh().await.map(drop)).await?;
    }
    if authorization.status == AuthorizationStatus::Valid {
        return Ok(None);
    }
    let mut problems = authorization.challenges.iter();
    let problem = problems.find_map(|challenge| challenge.error.as_ref());
    let why = problem.map(|problem| match &problem.detail {
        Some(detail) => detail.clone(),
        None => problem.to_string(),
    });
    Ok(Some(why.unwrap_or_else(|| {
        format!("the authorization is {:?}", authorization.status).to_lowercase()
    })))
}

fn identifier(name: &str) -> Identifier {
    match name.parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

fn challenge_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns01 => ChallengeType::Dns01,
    }
}

fn proof(
    kind: ChallengeKind,
    token: &str,
    authorization: &KeyAuthorization,
) -> Result<Proof, String> {
    Ok(match kind {
        ChallengeKind::Http01 => Proof::Http {
            token: token.to_owned(),
            authorization: authorization.as_str().to_owned(),
        },
        ChallengeKind::TlsAlpn01 => {
            let digest = authorization.digest().as_ref().try_into();
            let digest = digest.map_err(|_| "a digest of another length")?;
            Proof::TlsAlpn { digest }
        }
        ChallengeKind::Dns01 => Proof::Dns {
            value: authorization.dns_value(),
        },
    })
}
