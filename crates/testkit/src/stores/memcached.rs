//! memcached with 16 MiB and one thread.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{PATIENCE, Store, find, owned, user_for_root};
use crate::temp::TempDir;
use crate::wait::free_port;

/// What a memcached is beyond a store.
#[derive(Debug)]
pub struct Cache;

/// A memcached.
pub type Memcached = Store<Cache>;

impl Store<Cache> {
    /// Starts one; `settings` are further arguments of it. `None`, and a line on stderr, when
    /// there is no memcached.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let program = find(&["memcached"])?;
        let port = free_port();
        let number = port.to_string();
        let mut arguments = owned(&["-l", "127.0.0.1", "-p", &number, "-U", "0"]);
        arguments.extend(owned(&["-m", "16", "-t", "1"]));
        if let Some(user) = user_for_root("nobody") {
            arguments.extend(owned(&["-u", user]));
        }
        arguments.extend(owned(settings));
        let place = (TempDir::new(), port);
        Some(Self::begin(Cache, program, arguments, place, |memcached| {
            ask(memcached.address, "version").is_ok()
        }))
    }

    /// Stores a value that does not expire.
    ///
    /// # Panics
    /// When it is not taken.
    pub fn set(&self, key: &str, value: &str) {
        let line = format!("set {key} 0 0 {}\r\n{value}", value.len());
        let answer = ask(self.address, &line).expect("ask memcached");
        assert_eq!(answer, "STORED\r\n", "memcached took no `{key}`");
    }

    /// The value it has under a key.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        let answer = ask(self.address, &format!("get {key}")).expect("ask memcached");
        let (_, rest) = answer.strip_prefix("VALUE ")?.split_once("\r\n")?;
        rest.strip_suffix("\r\nEND\r\n").map(str::to_owned)
    }

    /// One figure of its `stats`: `total_connections`, `cmd_get` and so on. Asking makes a
    /// connection itself.
    ///
    /// # Panics
    /// When it has no such figure.
    #[must_use]
    pub fn figure(&self, name: &str) -> u64 {
        let answer = ask(self.address, "stats").expect("ask memcached");
        let prefix = format!("STAT {name} ");
        let found = answer.lines().find_map(|line| line.strip_prefix(&prefix));
        let found = found.and_then(|value| value.trim().parse().ok());
        found.unwrap_or_else(|| panic!("memcached has no figure {name}: {answer}"))
    }
}

/// Sends one command and reads its answer: a line, or lines up to `END`.
fn ask(address: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    while answer.starts_with("VALUE ") || answer.starts_with("STAT ") {
        if answer.ends_with("\r\nEND\r\n") {
            break;
        }
        read_one_more(&mut reader, &mut answer)?;
    }
    Ok(answer)
}

/// A line of `stats`, or what is left of a value.
fn read_one_more(reader: &mut impl BufRead, answer: &mut String) -> io::Result<()> {
    let value = answer.strip_prefix("VALUE ").map(str::trim_end);
    let length = value.and_then(|head| head.rsplit(' ').next()?.parse::<u64>().ok());
    let count = match length {
        Some(bytes) => reader
            .take(bytes + "\r\nEND\r\n".len() as u64)
            .read_to_string(answer)?,
        None => reader.read_line(answer)?,
    };
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_keeps_what_it_is_given_until_it_is_started_again() {
        let Some(mut memcached) = Memcached::start(&[]) else {
            return;
        };
        memcached.set("domain", "127.0.0.1:80");
        memcached.set("lines", "one\r\nEND\r\ntwo");
        assert_eq!(memcached.get("domain").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(memcached.get("lines").as_deref(), Some("one\r\nEND\r\ntwo"));
        assert_eq!(memcached.get("unknown"), None);
        assert_eq!(memcached.figure("cmd_set"), 2);

        memcached.stop();
        assert!(TcpStream::connect(memcached.address()).is_err());
        memcached.restart();
        assert_eq!(memcached.get("domain"), None);
    }

    #[test]
    fn a_paused_memcached_takes_connections_and_answers_once_it_goes_on() {
        let Some(memcached) = Memcached::start(&[]) else {
            return;
        };
        memcached.set("key", "value");
        memcached.pause();
        assert!(TcpStream::connect(memcached.address()).is_ok());
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| memcached.get("key"));
            memcached.resume();
            assert_eq!(asked.join().expect("no panic").as_deref(), Some("value"));
        });
    }
}
