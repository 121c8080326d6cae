//! Redis, or Valkey where that is installed, keeping nothing on disk.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use super::{PATIENCE, Store, find, owned};
use crate::temp::TempDir;
use crate::wait::free_port;

/// What a Redis is beyond a store.
#[derive(Debug)]
pub struct Redis;

/// A Redis server.
pub type RedisServer = Store<Redis>;

impl Store<Redis> {
    /// Starts one; `settings` are further arguments of it (`["--requirepass", "secret"]`; then
    /// [`Self::command`] is refused until it sends `AUTH`, which it does not). `None`, and a line
    /// on stderr, when there is none.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let program = find(&["redis-server", "valkey-server"])?;
        let port = free_port();
        let number = port.to_string();
        let mut arguments = owned(&["--bind", "127.0.0.1", "--port", &number]);
        arguments.extend(owned(&["--save", "", "--appendonly", "no"]));
        arguments.extend(owned(settings));
        let place = (TempDir::new(), port);
        Some(Self::begin(Redis, program, arguments, place, |redis| {
            ask(redis.address, &["PING"]).is_ok()
        }))
    }

    /// Starts a Sentinel that watches a store as `main`, and is alone in judging it; as [`Self::start`]. A store that
    /// has not answered for a second is lost.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_sentinel(of: &Self) -> Option<Self> {
        let program = find(&["redis-server", "valkey-server"])?;
        let (directory, port) = (TempDir::new(), free_port());
        let of = of.address.port();
        let config = directory.write(
            "sentinel.conf",
            format!(
                "bind 127.0.0.1\nport {port}\nsentinel monitor main 127.0.0.1 {of} 1\n\
                 sentinel down-after-milliseconds main 1000\n\
                 sentinel failover-timeout main 2000\n"
            ),
        );
        let arguments = owned(&[&config.display().to_string(), "--sentinel"]);
        let place = (directory, port);
        Some(Self::begin(Redis, program, arguments, place, |redis| {
            ask(redis.address, &["PING"]).is_ok()
        }))
    }

    /// Runs a command on a connection of its own. The answer as text: nothing for a missing
    /// value, a line for each element of a list, an error with its `-`.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        ask(self.address, words).expect("ask Redis")
    }
}

fn ask(address: SocketAddr, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    answer(&mut BufReader::new(stream))
}

/// One answer of the protocol's second version.
fn answer(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let Some(kind) = line.chars().next() else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let rest = &line[kind.len_utf8()..];
    match kind {
        '$' => value(reader, rest),
        '*' => {
            let count: i64 = rest.parse().map_err(io::Error::other)?;
            let elements: io::Result<Vec<String>> = (0..count).map(|_| answer(reader)).collect();
            Ok(elements?.join("\n"))
        }
        '-' => Ok(line.to_owned()),
        _ => Ok(rest.to_owned()),
    }
}

/// A string of a told length; `-1` is none.
fn value(reader: &mut impl BufRead, length: &str) -> io::Result<String> {
    let length: i64 = length.parse().map_err(io::Error::other)?;
    let Ok(length) = usize::try_from(length) else {
        return Ok(String::new());
    };
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_answers_in_text_until_it_is_stopped() {
        let Some(mut redis) = RedisServer::start(&[]) else {
            return;
        };
        assert_eq!(redis.command(&["SET", "key", "a b\r\nc"]), "OK");
        assert_eq!(redis.command(&["GET", "key"]), "a b\r\nc");
        assert_eq!(redis.command(&["GET", "unknown"]), "");
        assert_eq!(redis.command(&["INCR", "count"]), "1");
        assert_eq!(redis.command(&["RPUSH", "list", "a", "b"]), "2");
        assert_eq!(redis.command(&["LRANGE", "list", "0", "-1"]), "a\nb");
        assert!(redis.command(&["INCR", "list"]).starts_with("-WRONGTYPE"));

        redis.stop();
        assert!(TcpStream::connect(redis.address()).is_err());
        redis.restart();
        assert_eq!(redis.command(&["GET", "key"]), "");
    }

    #[test]
    fn settings_reach_redis() {
        let Some(redis) = RedisServer::start(&["--maxclients", "7"]) else {
            return;
        };
        let told = redis.command(&["CONFIG", "GET", "maxclients"]);
        assert_eq!(told, "maxclients\n7");
    }
}
