//! A redirect to a configured target.

use config::model::Redirect;
use wire::field_value_ok;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::fields;

/// Answers with `Location`.
///
/// # Errors
/// When the request brings bytes into the target that no field may hold.
pub(super) async fn answer(exchange: &mut Exchange, redirect: &Redirect) -> Result<()> {
    let mut target = Vec::new();
    fields::expand(&redirect.target, &exchange.request, &mut target);
    if !field_value_ok(&target) {
        return Err(Error::refused(400, "redirect_target"));
    }
    exchange.outgoing.status = redirect.status;
    exchange.outgoing.fields.push(b"Location", &target);
    exchange.answer(b"").await
}
