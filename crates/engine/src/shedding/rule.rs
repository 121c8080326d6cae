//! A rule that sheds, compiled.

use std::sync::Arc;

use config::model::{self, Degrade, ErrorPage, Mode, ShedReply, ShedScope, Template};
use limits::shed::State;

use super::standing::Standing;
use super::target;
use crate::conditions::Conditions;
use crate::error::{Error, Kind, Result};
use crate::exchange::request::Request;
use crate::maps::answers::Answers;
use crate::template::{self, Values};

/// A rule that sheds.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) conditions: Conditions,
    pub(super) scope: ShedScope,
    pub(super) answer: Answer,
    /// Whether requests do without optional scripts while it is not green.
    degrades_scripts: bool,
    /// How it is. It stays over a reload.
    pub(super) standing: Arc<Standing>,
}

/// What those are told that are shed.
#[derive(Debug)]
pub(super) enum Answer {
    /// Our page, or the site's.
    Whale,
    Page(Arc<ErrorPage>),
    Redirect(Template),
}

impl Rule {
    pub(super) fn compile(rule: &model::Shed, known: &[Rule]) -> Result<Self> {
        let whose = format!("[[shed]] {}", rule.name);
        let nothing = (&Arc::default(), &Default::default());
        let conditions = Conditions::compile(&rule.conditions, &whose, nothing);
        let conditions = conditions.map_err(|error| {
            let detail = format!("{whose}: {error}");
            Error::new(Kind::Internal, "pattern_too_large", detail)
        })?;
        let standing = known.iter().find(|known| known.standing.is_of(rule));
        Ok(Self {
            conditions,
            scope: rule.scope,
            answer: match &rule.respond {
                ShedReply::Whale => Answer::Whale,
                ShedReply::Page(page) => Answer::Page(Arc::new(ErrorPage::clone(page))),
                ShedReply::Redirect(target) => Answer::Redirect(target.clone()),
            },
            degrades_scripts: rule.degrade.contains(&Degrade::OptionalScripts),
            standing: match standing {
                Some(known) => Arc::clone(&known.standing),
                None => Arc::new(Standing::new(rule)),
            },
        })
    }

    /// Whether it only tells whom it would send away.
    pub(super) fn is_in_shadow(&self) -> bool {
        self.standing.mode == Mode::Shadow
    }

    /// Whether requests do without optional scripts now.
    pub(super) fn skips_optional(&self) -> bool {
        self.degrades_scripts && self.standing.state() != State::Green
    }

    /// Whether it sends elsewhere whom it sheds.
    pub(super) fn redirects(&self) -> bool {
        matches!(self.answer, Answer::Redirect(_))
    }

    /// Whether it sends others to where this request asks to go.
    pub(super) fn leads_to(&self, request: &Request) -> bool {
        match &self.answer {
            Answer::Redirect(template) => {
                target::is_asked_for(&self.expanded(template, request), request)
            }
            Answer::Whale | Answer::Page(_) => false,
        }
    }

    /// Where it sends this request, if it sends it somewhere.
    pub(super) fn location(&self, request: &Request) -> Option<Vec<u8>> {
        match &self.answer {
            Answer::Redirect(template) => Some(self.expanded(template, request)),
            Answer::Whale | Answer::Page(_) => None,
        }
    }

    fn expanded(&self, template: &Template, request: &Request) -> Vec<u8> {
        let mut target = Vec::new();
        // No map is asked here; `config` refuses it.
        let values = Values {
            request,
            answers: &Answers::NONE,
            captured: None,
        };
        template::expand(template, values, &mut target);
        target
    }
}
