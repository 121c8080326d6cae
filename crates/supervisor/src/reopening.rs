//! Logs that a server is given while it serves: all of them anew, or one that it asks for.

use config::reason;
use ipc::server::ToServer;

use crate::Supervisor;
use crate::phase::Phase;

impl Supervisor {
    /// Opens all logs again, and has the servers write to the new files.
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
        let reopen = ToServer::Reopen { logs };
        for retiring in &self.retiring {
            // What one that does not listen has still to write goes to the files of before.
            let _ = retiring.server.send(&reopen);
        }
        match server.send(&reopen) {
            Ok(()) => tracing::info!("logs opened again"),
            Err(error) => self.lose_server_by("it does not take the logs", &error),
        }
    }

    /// Opens a log that a server asks for: the answer.
    pub(super) fn opened_log(&self, path: String) -> ToServer {
        let mut result = self.current.logs.open_on_demand(&path);
        if let (Err(_), Phase::Reloading { next, .. }) = (&result, &self.phase) {
            result = next.logs.open_on_demand(&path);
        }
        if let Err(problem) = &result {
            tracing::error!("{problem}");
        }
        ToServer::LogFile { path, result }
    }

    /// Deals with a server that asks for a log.
    pub(super) fn open_log(&mut self, path: String) {
        let answer = self.opened_log(path);
        let sent = self.phase.server().map(|server| server.send(&answer));
        if let Some(Err(error)) = sent {
            self.lose_server_by("it does not take a log", &error);
        }
    }
}
