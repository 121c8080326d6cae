//! The server of a field report, rebuilt: before each answer its own process joins a control group.
//!
//! `attach PORT [FILE ...]` answers every request with 13 bytes and, where files are given (the
//! `cgroup.procs` of one group in each hierarchy), writes itself into them first. It exists to
//! show what that costs; `lab/cgroup/experiment.toml` runs it with and without a quota on the group.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nhello, world!";

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::other("usage: attach PORT [FILE ...]"))?;
    let open = |path: String| File::options().write(true).open(path);
    let groups: Arc<Vec<File>> = Arc::new(arguments.map(open).collect::<io::Result<_>>()?);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    for stream in listener.incoming() {
        let groups = Arc::clone(&groups);
        let stream = stream?;
        // A client that leaves ends its own thread.
        std::thread::spawn(move || serve(stream, &groups));
    }
    Ok(())
}

fn serve(mut stream: TcpStream, groups: &[File]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // The generator sends one small request at a time, each in one segment.
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        for mut group in groups {
            group.write_all(b"0")?;
        }
        stream.write_all(REPLY)?;
    }
    Ok(())
}
