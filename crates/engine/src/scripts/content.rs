//! The handler that is a script.

use std::rc::Rc;

use script::Phase;

use super::{Next, outcome, phases};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::worker::{Serving, Worker};

/// Answers by the script of the deciding rule. [`Next::On`]: it declined, and the site's files are
/// to answer.
///
/// # Errors
/// It failed.
pub(crate) async fn content(
    worker: &Rc<Worker>,
    serving: &Serving,
    exchange: &mut Exchange,
) -> Result<Next> {
    let used = exchange.route.deciding_rule().and_then(|rule| rule.script);
    let (Some(used), Some(scripts)) = (used, &serving.scripts) else {
        return Err(Error::new(Kind::Internal, "no_scripts", String::new()));
    };
    outcome::show_fields(exchange);
    let ended = phases::run(worker, scripts, exchange, Phase::Content, used).await?;
    if let Err(failure) = ended {
        outcome::keep_fields(exchange);
        return Err(outcome::denied(&failure));
    }
    outcome::settle_content(exchange).await
}
