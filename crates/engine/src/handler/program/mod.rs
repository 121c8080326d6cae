//! What the handlers that have a program answer share, FastCGI and CGI.
//!
//! Which file is the program ([`script()`]), what it is told ([`environment()`]), and how what it says
//! becomes the reply ([`ProgramReply`]): how its bytes get to and from it is each handler's own.

mod environment;
pub(crate) mod reply;
pub(crate) mod stderr;

pub(super) use environment::environment;
pub(super) use reply::{LocalLocation, ProgramReply};

use std::rc::Rc;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::resolve;
use crate::resolve::resolved::{Found, Resolved};
use crate::stage::Routed;

/// The file that the request's path came to, as a program.
///
/// # Errors
/// 404 where there is none, 403 where the server may not look.
pub(super) async fn script(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Rc<Resolved>> {
    let Some(resolved) = resolve::file(routed, exchange).await? else {
        return Err(Error::refused(404, "no_root"));
    };
    match resolved.found() {
        Found::File(_) | Found::Unreadable => Ok(resolved),
        Found::Directory(_) | Found::Unslashed => Err(Error::refused(404, "directory")),
        Found::Missing(why) => Err(super::missing(exchange, why)),
        Found::Denied(None) => Err(Error::refused(403, "permission_denied")),
        Found::Denied(Some(advice)) => {
            Err(Error::new(Kind::Refused(403), "root_denied", &**advice))
        }
        Found::Status(status) => Err(Error::refused(*status, "try_status")),
    }
}
