//! Certificates that scripts choose, on the way of a handshake.
//!
//! A script gets its turn where the handshake's own steps do, so that a client that asks too often waits or is sent
//! away before one runs; what it took is charged with the next step. It runs for sessions that are resumed, too: what
//! it refuses is refused whatever ticket is shown.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use limits::handshake::StepKind;

use super::{Handshake, INTERNAL_ERROR, Over, Shown, UNRECOGNIZED_NAME};
use crate::scripts::handshake::{self, Denied, Handshaking};
use crate::tls::handshake::{Made, Who};
use config::model::ListenTls;
use wire::client_hello::ClientHello;

impl Handshake<'_> {
    /// The site whose scripts are to say what is shown: that of the name, or else of the address or the default.
    pub(super) fn scripted_site(
        &self,
        hello: &ClientHello,
        asked: Option<u32>,
        tls: &ListenTls,
    ) -> Option<u32> {
        let by_address = || {
            let local = self.peer.local_ip.to_canonical().to_string();
            self.site_of(&local).filter(|_| hello.name.is_none())
        };
        let site = asked.or_else(by_address);
        let site = site.or_else(|| self.site_of(tls.default.as_deref()?));
        site.filter(|site| handshake::has(self.serving, *site))
    }

    /// What scripts of a site say is to be shown; `None` where they leave that to the site.
    pub(super) async fn shown_by_scripts(
        &mut self,
        site: u32,
        hello: &ClientHello,
    ) -> Result<Option<Shown>, Over> {
        let (who, policy) = (self.who_says(Some(site), hello), self.policy(Some(site))?);
        self.turn(who, 0).await?;
        let mut handshaking = Handshaking::new(
            (self.worker, self.serving),
            site,
            &self.peer,
            self.name.as_deref(),
            policy.version_with(&self.offered),
        );
        let mut cpu_ns = 0;
        let shown = self.ask_scripts(&mut handshaking, &mut cpu_ns).await;
        if shown.is_err() {
            let who = Who {
                kind: StepKind::Short,
                ..who
            };
            // It ends either way, and the client pays for it.
            let _ = self.turn(who, cpu_ns).await;
        } else {
            self.unpaid_ns = cpu_ns;
        }
        shown
    }

    /// Waits for the client's turn, and has it pay.
    async fn turn(&mut self, who: Who, paid_ns: u64) -> Result<(), Over> {
        let step = move |_| Made {
            value: (),
            was: StepKind::Short,
            elsewhere_ns: paid_ns,
        };
        let made = self.worker.shared.handshakes.run(who, &self.deadline, step);
        let made = made.await.map_err(Over::of_error)?;
        self.cpu_us += made.cpu_us;
        Ok(())
    }

    /// Runs the scripts and finds what they name, until the deadline.
    async fn ask_scripts(
        &self,
        handshaking: &mut Handshaking,
        cpu_ns: &mut u64,
    ) -> Result<Option<Shown>, Over> {
        let mut found = pin!(async {
            let wanted = handshaking.run(cpu_ns).await.map_err(Over::of_script)?;
            let (Some(wanted), Some(site)) = (wanted, handshaking.site()) else {
                return Ok(None);
            };
            let certifier = &self.worker.shared.certifier;
            let certificate = certifier.find(&site.name, wanted).await.map_err(|why| {
                let reason = "script_certificate";
                handshaking.tell(site, reason, &why, "the handshake is refused");
                Over::of_script(Denied {
                    reason,
                    detail: why.to_string(),
                })
            })?;
            Ok(Some(Shown {
                chain: certificate.chain.clone(),
                key: certificate.key(),
                kind: certificate.kind,
            }))
        });
        poll_fn(|cx| match found.as_mut().poll(cx) {
            Poll::Ready(found) => Poll::Ready(found),
            Poll::Pending => {
                let late = |()| {
                    Err(Over {
                        last_word: INTERNAL_ERROR,
                        ..Over::of("script_late", "")
                    })
                };
                self.deadline.poll_expired(cx).map(late)
            }
        })
        .await
    }
}

impl Over {
    /// What a script's word against a handshake, or its failure, comes to.
    fn of_script(Denied { reason, detail }: Denied) -> Self {
        let last_word = match reason {
            "script_said" => UNRECOGNIZED_NAME,
            _ => INTERNAL_ERROR,
        };
        Self {
            last_word,
            ..Self::of(reason, detail)
        }
    }
}
