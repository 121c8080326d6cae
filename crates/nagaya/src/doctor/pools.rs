//! What a configuration with pools wants of the machine: the PHPs that it names, the right to build
//! walls, and a server that takes mail.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use config::model::{Isolate, Model, Php, PoolProgram};
use config::reason;
use supervisor::surroundings::is_other_than_php_fpm;

use super::{CheckState, Finding, finding};

/// How long the server for mail may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at all of it, where there are pools.
pub(super) fn look(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    if model.pools.iter().any(|pool| pool.isolate == Isolate::Home) {
        findings.push(walls());
    }
    findings.extend(model.php.iter().map(php));
    let is_php = |program: &PoolProgram| matches!(program, PoolProgram::Php(_));
    if model.pools.iter().any(|pool| is_php(&pool.program)) {
        findings.push(mail(&model.pool_terms.mail));
    }
    findings
}

/// Whether the program of a PHP that sites have is there.
fn php(php: &Php) -> Finding {
    let name = format!("PHP {} of pools", php.version);
    let program = php.program.display();
    let facts = std::fs::metadata(&php.program);
    let why = match facts {
        Ok(facts) if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 => {
            Some("it is no program".to_owned())
        }
        Ok(_) if is_other_than_php_fpm(&php.program) => Some("it is no php-fpm".to_owned()),
        Ok(_) => None,
        Err(error) => Some(reason(&error)),
    };
    let version = &php.version;
    let remedy = format!("install it, or name another: [php.\"{version}\"] program = \"…\"");
    match why {
        None => finding(&name, true, &program.to_string(), ""),
        Some(why) => Finding {
            state: CheckState::Needed,
            ..finding(&name, false, &format!("{program}: {why}"), &remedy)
        },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_php_that_is_not_there_is_told_with_what_to_do() {
        let told = |program: &str| {
            let of = Php {
                version: "8.9".to_owned(),
                program: program.into(),
                ini: Vec::new(),
            };
            format!("{:?}", php(&of))
        };
        for (program, said) in [
            ("/nonexistent/php-fpm", "/nonexistent/php-fpm: "),
            ("/etc/passwd", "/etc/passwd: it is no program"),
            ("/bin/false", "/bin/false: it is no php-fpm"),
        ] {
            let told = told(program);
            assert!(
                told.contains(said) && told.contains("name another"),
                "{told}"
            );
        }
        let place = testkit::TempDir::new();
        let script = place.write_program("php", "#!/bin/sh\nexec php-fpm \"$@\"\n");
        let told = told(&script.to_string_lossy());
        assert!(!told.contains("name another"), "{told}");
    }
}
