//! What a master of php-fpm is told.
//!
//! The idea: one file with one pool, written here and read once. Names and values come from
//! operators who may write other tenants' settings beside, so each is looked at again: a name is
//! letters that cannot end it, a value stands between quotes that it cannot leave. `listen` is the
//! descriptor's own name: php-fpm takes the socket by it (`FPM_SOCKETS`), and what it removes at its
//! end cannot be removed.

use std::ffi::CString;
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

use ipc::pools::FPM_STATUS_PATH;

use super::costs;
use super::words::LINE_BYTES_MAX;

/// The descriptors it has beside its three: the socket, and the file.
pub(super) const SOCKET: &str = "/proc/self/fd/3";
const FILE: &str = "/proc/self/fd/4";
/// Where it says what there is to say.
const WORDS: &str = "/proc/self/fd/2";
/// What it says when it is ready.
pub(super) const READY: &str = "ready to handle connections";
/// Where programs find others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 16 * 1_024;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 128;
/// How long a child without work stays, in seconds.
const CHILD_IDLE_S: u64 = 10;

/// A master.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fpm<'a> {
    pub(super) id: &'a str,
    /// The pool's own directory.
    pub(super) directory: &'a Path,
    pub(super) processes: u32,
    pub(super) requests: u32,
    pub(super) time_ms: u64,
    pub(super) idle_ms: Option<u64>,
    pub(super) ini: &'a [(String, String)],
    pub(super) admin: &'a [(String, String)],
    /// What sends mail.
    pub(super) sendmail: Option<&'a str>,
    /// Whether it has walls, and so a `/tmp` of its own.
    pub(super) has_walls: bool,
}

impl Fpm<'_> {
    /// Its file.
    ///
    /// # Errors
    /// Which setting cannot be written.
    pub(super) fn file(&self) -> Result<String, String> {
        let id = self.id;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if id.is_empty() || !id.bytes().all(is_plain) {
            return Err(format!("{id:?} cannot be the name of a pool"));
        }
        let seconds = self.time_ms.div_ceil(1_000).max(1);
        // Processes are to go before the pool is without work.
        let idle = self.idle_ms.map_or(CHILD_IDLE_S, |idle| idle / 2_000);
        let idle = idle.clamp(1, CHILD_IDLE_S);
        let (processes, requests) = (self.processes.max(1), self.requests);
        let mut file = format!(
            "[global]\n\
             daemonize = no\n\
             error_log = {WORDS}\n\
             log_level = notice\n\
             log_limit = {LINE_BYTES_MAX}\n\
             process_control_timeout = {seconds}s\n\
             [{id}]\n\
             listen = {SOCKET}\n\
             pm = ondemand\n\
             pm.max_children = {processes}\n\
             pm.process_idle_timeout = {idle}s\n\
             pm.max_requests = {requests}\n\
             pm.status_path = {FPM_STATUS_PATH}\n\
             request_terminate_timeout = {seconds}s\n\
             request_terminate_timeout_track_finished = yes\n\
             catch_workers_output = yes\n\
             clear_env = yes\n\
             env[PATH] = {PATH}\n\
             security.limit_extensions = .php .phar\n\
             access.log = {WORDS}\n\
             access.format = \"{}\"\n",
            costs::FORMAT
        );
        for (kind, name, value) in self.settings()? {
            let (name, value) = (checked_name(&name)?, quoted(&name, &value)?);
            let _ = writeln!(file, "{kind}[{name}] = {value}");
        }
        Ok(file)
    }

    /// Settings of its programs, each once: the first of two would count.
    fn settings(&self) -> Result<Vec<(&'static str, String, String)>, String> {
        let admin = self.admin.iter().filter(|(name, _)| !is_of_all(name));
        let mut settings: Vec<_> = admin
            .map(|(name, value)| ("php_admin_value", name.clone(), value.clone()))
            .collect();
        let own = |name: &str| path_text(&self.directory.join(name));
        let mut ours = vec![
            // Debian clears its own directory by other means.
            ("php_value", "session.gc_probability", "1".to_owned()),
            ("php_value", "session.gc_divisor", "1000".to_owned()),
            ("php_value", "session.save_path", own("sessions")?),
            ("php_admin_value", "upload_tmp_dir", own("uploads")?),
        ];
        if self.has_walls {
            ours.push(("php_admin_value", "sys_temp_dir", "/tmp".to_owned()));
        }
        if let Some(sendmail) = self.sendmail {
            ours.push(("php_admin_value", "sendmail_path", sendmail.to_owned()));
        }
        for (kind, name, value) in ours {
            if !settings.iter().any(|(_, known, _)| known == name) {
                settings.push((kind, name.to_owned(), value));
            }
        }
        Ok(settings)
    }

    /// The directory of what it keeps of compiled files, in the pool's `cache`: one for each set of
    /// settings, since PHP puts the values of some into what it has compiled.
    pub(super) fn cache_name(&self) -> String {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.ini, self.admin, self.has_walls).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// What follows its name.
    ///
    /// # Errors
    /// As [`Fpm::file`].
    pub(super) fn arguments(&self) -> Result<Vec<CString>, String> {
        let cache = path_text(&self.directory.join("cache").join(self.cache_name()))?;
        let mut settings = vec![("opcache.file_cache".to_owned(), cache)];
        let admin = self.admin.iter().filter(|(name, _)| is_of_all(name));
        for (name, value) in self.ini.iter().chain(admin) {
            settings.retain(|(known, _)| known != name);
            settings.push((name.clone(), value.clone()));
        }
        let mut words = vec!["-F".to_owned(), "-y".into(), FILE.into()];
        for (name, value) in settings {
            let (name, value) = (checked_name(&name)?, quoted(&name, &value)?);
            words.extend(["-d".to_owned(), format!("{name}={value}")]);
        }
        let words = words.into_iter().map(CString::new);
        let words: Result<Vec<_>, _> = words.collect();
        words.map_err(|_| "a setting with a NUL".to_owned())
    }
}

/// Whether a setting is one of the whole process.
fn is_of_all(name: &str) -> bool {
    name.starts_with("opcache.")
}

/// A path as it is written down.
fn path_text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("{} is no text", path.display()))
}

fn checked_name(name: &str) -> Result<&str, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(fits) {
        Ok(name)
    } else {
        Err(format!("{name:?} cannot be a setting of PHP"))
    }
}

/// A value as PHP reads it back, and nothing else.
fn quoted(name: &str, value: &str) -> Result<String, String> {
    let is_wrong = |c: char| c.is_control() || ['"', '\\'].contains(&c);
    if value.contains(is_wrong) || value.contains("${") || value.len() > VALUE_BYTES_MAX {
        Err(format!("the value of {name} cannot be written"))
    } else {
        Ok(format!("\"{value}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fpm<'a>(ini: &'a [(String, String)], admin: &'a [(String, String)]) -> Fpm<'a> {
        Fpm {
            id: "example-1f",
            directory: Path::new("/var/lib/nagaya-pools/example-1f"),
            processes: 8,
            requests: 4_000,
            time_ms: 300_000,
            idle_ms: Some(600_000),
            ini,
            admin,
            sendmail: Some("/usr/bin/nagaya sendmail -t -i"),
            has_walls: true,
        }
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_file_says_what_is_configured() {
        let admin = [
            pair("memory_limit", "256M"),
            pair("opcache.revalidate_freq", "60"),
            pair(
                "session.save_path",
                "tcp://127.0.0.1:11211?x=[1];y#z 'q' %{a}",
            ),
        ];
        let file = fpm(&[], &admin).file().unwrap();
        for line in [
            "[example-1f]",
            "listen = /proc/self/fd/3",
            "pm.max_children = 8",
            "pm.process_idle_timeout = 10s",
            "request_terminate_timeout = 300s",
            "access.format = \"nagaya-cost %{total}C %{microseconds}d %f\"",
            "php_admin_value[memory_limit] = \"256M\"",
            "php_admin_value[session.save_path] = \"tcp://127.0.0.1:11211?x=[1];y#z 'q' %{a}\"",
            "php_admin_value[upload_tmp_dir] = \"/var/lib/nagaya-pools/example-1f/uploads\"",
            "php_admin_value[sendmail_path] = \"/usr/bin/nagaya sendmail -t -i\"",
        ] {
            assert!(file.lines().any(|it| it == line), "{line}\n{file}");
        }
        assert_eq!(file.matches("session.save_path").count(), 1, "{file}");
        assert!(!file.contains("opcache"), "{file}");
        let ini = [pair("opcache.memory_consumption", "64")];
        let arguments = fpm(&ini, &admin).arguments().unwrap();
        let mut arguments: Vec<_> = arguments.iter().map(|it| it.to_str().unwrap()).collect();
        let cache = arguments.remove(4);
        let path = "opcache.file_cache=\"/var/lib/nagaya-pools/example-1f/cache/";
        assert!(cache.starts_with(path), "{cache}");
        assert_eq!(
            arguments,
            [
                "-F",
                "-y",
                "/proc/self/fd/4",
                "-d",
                "-d",
                "opcache.memory_consumption=\"64\"",
                "-d",
                "opcache.revalidate_freq=\"60\"",
            ]
        );
    }

    #[test]
    fn what_is_compiled_with_other_settings_is_kept_elsewhere() {
        let (one, other) = ([pair("memory_limit", "64M")], [pair("memory_limit", "65M")]);
        let same = one.clone();
        let name = |admin| fpm(&[], admin).cache_name();
        assert_eq!(name(&one), name(&same));
        assert_ne!(name(&one), name(&other));
        assert_ne!(fpm(&one, &[]).cache_name(), name(&one));
    }

    #[test]
    fn a_short_lived_pool_has_children_that_live_shorter() {
        let short = Fpm {
            idle_ms: Some(1_000),
            time_ms: 1,
            ..fpm(&[], &[])
        };
        let file = short.file().unwrap();
        assert!(file.contains("pm.process_idle_timeout = 1s\n"), "{file}");
        assert!(file.contains("request_terminate_timeout = 1s\n"), "{file}");
    }

    #[test]
    fn nothing_that_is_set_can_set_anything_else() {
        let wrong_values = [
            "a\nuser = root",
            "a\r",
            "a\0b",
            "a\"\nuser = root",
            "\"",
            "a\\",
            "${HOME}",
            "a\u{85}b",
        ];
        for value in wrong_values {
            let settings = [pair("memory_limit", value)];
            let refused = fpm(&[], &settings).file().unwrap_err();
            assert!(refused.contains("memory_limit"), "{refused}");
            assert!(fpm(&settings, &[]).arguments().is_err(), "{value:?}");
            let of_master = [pair("opcache.preload", value)];
            assert!(fpm(&[], &of_master).arguments().is_err(), "{value:?}");
        }
        for name in [
            "", "a]", "a[b", "a=b", "a b", "a\nb", ";a", "#", "é", "1a", "a\"b",
        ] {
            let settings = [pair(name, "1")];
            assert!(fpm(&[], &settings).file().is_err(), "{name:?}");
            assert!(fpm(&settings, &[]).arguments().is_err(), "{name:?}");
        }
        for id in ["", "a]\nuser = root\n[b", "a/b", "a b"] {
            let named = Fpm {
                id,
                ..fpm(&[], &[])
            };
            assert!(named.file().is_err(), "{id:?}");
        }
        let elsewhere = Fpm {
            directory: Path::new("/srv/a\"\nuser = root"),
            ..fpm(&[], &[])
        };
        assert!(elsewhere.file().is_err() && elsewhere.arguments().is_err());
    }

    #[test]
    fn whatever_is_set_every_line_is_one_of_ours() {
        let mut dice: u64 = 7;
        let mut roll = |sides: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            usize::try_from(dice).unwrap_or(usize::MAX) % sides
        };
        let letters = [
            'a', '.', '"', '\\', '\n', ']', '[', '=', ';', '$', '{', '}', '#', '\'',
        ];
        for _ in 0..20_000 {
            let mut text =
                |length| -> String { (0..length).map(|_| letters[roll(letters.len())]).collect() };
            let settings = [(text(3), text(8)), (format!("a{}", text(2)), text(6))];
            let Ok(file) = fpm(&[], &settings).file() else {
                continue;
            };
            let sections = file.lines().filter(|line| line.starts_with('['));
            assert_eq!(sections.count(), 2, "{file}");
            for line in file.lines().filter(|line| line.starts_with("php_")) {
                let (name, value) = line.split_once("] = \"").unwrap();
                assert_eq!(name.matches('[').count(), 1, "{line}");
                assert!(
                    value.ends_with('"') && value.matches('"').count() == 1,
                    "{line}"
                );
            }
            let lines = file.lines().count();
            assert!(lines <= 22 + 6 + 2, "{lines}\n{file}");
        }
    }
}
