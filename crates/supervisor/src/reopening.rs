//! Logs that a server is given while it serves: all of them anew, or one that it asks for.

use config::reason;
use ipc::server::ToServer;

use crate::Supervisor;
use crate::phase::Phase;

impl Supervisor {
    /// Opens the logs again, and gives them to the server.
    pub(super) fn reopen_logs(&mut self) {
        for problem in self.current.logs.reopen() {
            tracing::error!("{problem}; the file open until now is written on");
        }
        let Some(server) = self.phase.server() else {
            return;
        };
        let logs = match self.current.logs.for_server() {
            Ok(logs) => logs,
            Err(error) => {
                let error = reason(&error);
                return tracing::error!(
                    error,
                    "the logs cannot be handed on, those open until now are written on"
                );
            }
        };
        match server.send(&ToServer::Reopen { logs }) {
            Ok(()) => tracing::info!("logs opened again"),
            Err(error) => self.lose_server_by("it does not take the logs", &error),
        }
    }

    /// Opens a log whose path the server made from a template.
    pub(super) fn open_log(&mut self, path: String) {
        let mut result = self.current.logs.open_on_demand(&path);
        if let (Err(_), Phase::Reloading { next, .. }) = (&result, &self.phase) {
            result = next.logs.open_on_demand(&path);
        }
        if let Err(problem) = &result {
            tracing::error!("{problem}");
        }
        let Some(server) = self.phase.server() else {
            return;
        };
        if let Err(error) = server.send(&ToServer::LogFile { path, result }) {
            self.lose_server_by("it does not take a log", &error);
        }
    }
}
