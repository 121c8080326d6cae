//! Programs an experiment needs: where they are, and which version.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::reading::OURS;

/// Directories an ordinary user's PATH may lack.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Files a pattern may match.
const MATCHES_MAX: usize = 10_000;
/// Longest wait for a program to say its version.
const VERSION_WAIT: Duration = Duration::from_secs(10);
/// Programs whose short flag alone says the version.
const SHORT_FLAG: [&str; 5] = ["nginx", "haproxy", "apache2", "httpd", "php-fpm"];

/// Programs named on the command line, over what is found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Programs {
    pub(crate) given: Vec<(String, PathBuf)>,
    pub(crate) without: Vec<String>,
}

impl Programs {
    /// Where a program is, or why there is none.
    pub(crate) fn find(&self, name: &str) -> Result<PathBuf, String> {
        if self.without.iter().any(|without| without == name) {
            return Err(format!("{name} is left out by --without"));
        }
        if let Some((_, path)) = self.given.iter().find(|(given, _)| given == name) {
            // Servers are started from directories of their own.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let there = path.is_file();
            return there
                .then(|| path.clone())
                .ok_or_else(|| format!("--peer {name}={}: there is no such file", path.display()));
        }
        if name.starts_with('/') {
            return last_match(name).ok_or_else(|| format!("{name} is not there"));
        }
        let beside = || (name == OURS).then(built_beside).flatten();
        beside().or_else(|| on_path(name)).ok_or_else(|| {
            format!(
                "{name} is neither in PATH nor in {}; install it, or name it by --peer {name}=PATH",
                SBIN.join(", ")
            )
        })
    }
}

/// The gateway that was built with this program.
fn built_beside() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(OURS);
    is_program(&program).then_some(program)
}

/// The last file of a path whose parts may have a `*` each.
fn last_match(pattern: &str) -> Option<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part.split_once('*') {
            None => found.iter().map(|path| path.join(part)).collect(),
            Some((start, end)) => found
                .iter()
                .flat_map(|path| matches_in(path, start, end))
                .take(MATCHES_MAX)
                .collect(),
        };
    }
    found.retain(|path| path.exists());
    found.into_iter().max()
}

fn matches_in(directory: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let fits = |name: &str| {
        let rest = name.strip_prefix(start);
        rest.is_some_and(|rest| rest.ends_with(end))
    };
    let fitting = entries.filter(|entry| entry.file_name().to_str().is_some_and(fits));
    fitting.map(|entry| entry.path()).collect()
}

/// A program in PATH or the sbin directories; of versioned names (`php-fpm8.2`) the newest.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(SBIN.map(PathBuf::from))
        .collect();
    let plain = directories.iter().map(|directory| directory.join(name));
    let mut plain = plain.filter(|file| is_program(file));
    plain.next().or_else(|| {
        let versioned = directories
            .iter()
            .flat_map(|directory| versions_in(directory, name));
        versioned
            .max_by_key(|(version, _)| *version)
            .map(|(_, path)| path)
    })
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).map(|about| (about.is_file(), about.permissions().mode()));
    mode.is_ok_and(|(is_file, mode)| is_file && mode & 0o111 != 0)
}

/// Programs of a directory that are called `name` and a version: its numbers, and the path.
fn versions_in(directory: &Path, name: &str) -> Vec<((u32, u32), PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let version = |entry: std::fs::DirEntry| {
        let file = entry.file_name();
        let rest = file.to_str()?.strip_prefix(name)?;
        let (major, minor) = rest.split_once('.').unwrap_or((rest, "0"));
        let numbers = (major.parse().ok()?, minor.parse().ok()?);
        is_program(&entry.path()).then(|| (numbers, entry.path()))
    };
    entries.filter_map(version).collect()
}

/// The first line a program says about itself, on whichever stream.
pub(crate) fn version(name: &str, path: &Path) -> Option<String> {
    let flag = if SHORT_FLAG.contains(&name) {
        "-v"
    } else {
        "--version"
    };
    let mut child = Command::new(path)
        .arg(flag)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + VERSION_WAIT;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > deadline {
            let _ = child.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().ok()?;
    // Who does not know the flag says how it is used, or worse.
    if !output.status.success() {
        return None;
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?.trim();
    let line = line.split(" - http").next().unwrap_or(line);
    let line = line
        .trim_start_matches("nginx version: ")
        .trim_start_matches("Server version: ");
    Some(line.chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_given_or_told_missing() {
        let mut programs = Programs::default();
        assert!(programs.find("sh").is_ok_and(|path| path.is_absolute()));
        assert_eq!(programs.find("/e*/passwd"), Ok("/etc/passwd".into()));
        assert!(programs.find("/no/such/*.so").is_err());
        let missing = programs.find("no-such-server").expect_err("there is none");
        assert!(missing.contains("--peer no-such-server=PATH"), "{missing}");
        programs.given.push(("nginx".into(), "/bin/sh".into()));
        assert_eq!(programs.find("nginx"), Ok("/bin/sh".into()));
        programs.without.push("nginx".into());
        assert!(
            programs
                .find("nginx")
                .is_err_and(|why| why.contains("--without"))
        );
    }
}
