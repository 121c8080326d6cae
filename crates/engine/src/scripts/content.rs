//! The handler that is a script.

use script::Phase;

use super::next::Next;
use super::{outcome, phases};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::stage::Chosen;

/// Answers by the script of the deciding rule. [`Next::On`]: it declined, and the site's files are
/// to answer.
///
/// # Errors
/// It failed.
pub(crate) async fn content(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    let used = chosen.rule.and_then(|rule| rule.script);
    let Some(used) = used else {
        return Err(Error::new(Kind::Internal, "no_scripts", String::new()));
    };
    outcome::show_fields(exchange);
    let ended = phases::run(**chosen, exchange, Phase::Content, used).await?;
    phases::let_go(chosen, exchange);
    if let Err(failure) = ended {
        outcome::keep_fields(exchange);
        return Err(outcome::denied(&failure));
    }
    outcome::settle_content(**chosen, exchange).await
}
