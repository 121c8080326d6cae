//! Notifications to the service manager (`sd_notify`): datagrams to the socket it names.
//!
//! The idea: telling is a courtesy. Without a manager there is nobody to tell, and a manager
//! that does not listen changes nothing here.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    /// From `NOTIFY_SOCKET`.
    pub(super) fn from_environment() -> Notify {
        Notify(std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name)))
    }

    /// The configuration is being read again.
    pub(super) fn reloading(&self) {
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={}",
            os::cpu::monotonic_us()
        ));
    }

    /// Requests are answered; `status` is a line for people.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Something changed that people should see.
    pub(super) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing what is under way");
    }

    fn tell(&self, text: &str) {
        if let Some((socket, manager)) = &self.0 {
            let _ = socket.send_to_addr(text.as_bytes(), manager);
        }
    }
}

fn connect(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes() {
        // An abstract address is written with a leading `@`.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
        _ => SocketAddr::from_pathname(name).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, manager))
}
