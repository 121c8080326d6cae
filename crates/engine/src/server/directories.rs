//! The link to the directory process, as the supervisor hands it to the server.

use std::sync::Arc;

use ipc::directory::DirectoryNews;

use super::ServerThreads;
use crate::directory::link::{self, DirectoryLink};

/// Asks the process for rows over this link from now on, where there is another.
pub(super) fn take(server: &mut ServerThreads, news: DirectoryNews) {
    if let (Some(link), Some(fleet)) = (news.fleet, &server.fleet) {
        fleet.use_link(link);
    }
    let Some(link) = news.link else {
        return;
    };
    if server.asker.is_none() {
        match link::start(Arc::clone(&server.shared.rows)) {
            Ok(asker) => server.asker = Some(asker),
            Err(error) => tracing::error!("rows are not asked for: {error}"),
        }
    }
    if let Some(asker) = &server.asker {
        let names = news.names;
        asker.use_link(DirectoryLink { link, names });
    }
}
