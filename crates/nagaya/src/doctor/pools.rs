//! What a configuration with pools wants of the machine: the right to build walls, and a server that
//! takes mail.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use config::model::{Isolate, Model, PoolProgram};
use config::reason;

use super::{Finding, finding};

/// How long the server for mail may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at all of it, where there are pools.
pub(super) fn look(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    if model.pools.iter().any(|pool| pool.isolate == Isolate::Home) {
        findings.push(walls());
    }
    let is_php = |program: &PoolProgram| matches!(program, PoolProgram::Php(_));
    if model.pools.iter().any(|pool| is_php(&pool.program)) {
        findings.push(mail(&model.pool_terms.mail));
    }
    findings
}

fn walls() -> Finding {
    let is_there = os::process::is_root() && os::confine::may_mount();
    let detail = match (is_there, os::process::is_root()) {
        (true, _) => "CAP_SYS_ADMIN, which the spawner alone uses",
        (false, true) => "CAP_SYS_ADMIN is missing here: pools with walls do not start",
        (false, false) => "not root here: pools see all that their user sees",
    };
    let remedy =
        "start as root; systemctl edit nagaya: [Service] CapabilityBoundingSet=CAP_SYS_ADMIN";
    finding("walls of pools", is_there, detail, remedy)
}

fn mail(server: &str) -> Finding {
    let addresses = server.to_socket_addrs();
    let reached = addresses.and_then(|mut addresses| {
        let address = addresses.next().ok_or(std::io::ErrorKind::NotFound)?;
        TcpStream::connect_timeout(&address, PATIENCE)
    });
    let remedy = format!("start a mail server at {server}, or name another by `[pools] mail`");
    match reached {
        Ok(_) => finding("mail of pools", true, &format!("{server} answers"), ""),
        Err(error) => {
            let detail = format!("{server}: {}: mail() of PHP fails", reason(&error));
            finding("mail of pools", false, &detail, &remedy)
        }
    }
}
