//! Listening sockets, kept for as long as a generation wants them.
//!
//! The idea: a socket is shared (`Rc`) by the generations that name its address. A reload takes
//! over what is already bound and binds only what is new; dropping the generation that lost
//! closes exactly the sockets only it had. The server's death closes none.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use config::model::{ListenAddress, Listener};
use config::reason;
use ipc::handover::SocketAt;
use ipc::server::ListenerSocket;
use os::net::{self, Bind};

/// The listeners of a generation.
#[derive(Debug, Default)]
pub(super) struct Listeners(BTreeMap<ListenAddress, Kept>);

#[derive(Debug)]
struct Kept {
    backlog: u32,
    /// Permissions of a Unix socket's file.
    mode: u32,
    bound: Rc<Bound>,
}

/// What stands behind an address: one socket for each worker, or one for all.
#[derive(Debug)]
struct Bound {
    sockets: Vec<OwnedFd>,
    _file: Option<SocketFile>,
}

/// The file of a Unix socket; goes with it.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    /// Binds what `before` has not bound already. On failure says all that went wrong, and what
    /// was newly bound is closed.
    pub(super) fn bind(
        wanted: &[Listener],
        workers: usize,
        before: Option<&Listeners>,
    ) -> Result<Listeners, Vec<String>> {
        let mut problems = Vec::new();
        if before.is_none() {
            // Our sockets share their port, so a second gateway started by mistake would take
            // half of the first one's connections instead of failing.
            problems.extend(wanted.iter().filter_map(check_free));
        }
        let mut listeners = BTreeMap::new();
        for listener in wanted {
            let known = before.and_then(|before| before.0.get(&listener.address));
            let bound = match known {
                Some(known) => Ok(Rc::clone(&known.bound)),
                None => bind(listener, workers).map(Rc::new),
            };
            match bound {
                Ok(bound) => {
                    let kept = Kept {
                        backlog: listener.backlog,
                        mode: listener.mode,
                        bound,
                    };
                    listeners.insert(listener.address.clone(), kept);
                }
                Err(error) => problems.push(problem(listener, &error)),
            }
        }
        problems.dedup();
        if problems.is_empty() {
            Ok(Listeners(listeners))
        } else {
            Err(problems)
        }
    }

    /// Those that another supervisor had.
    pub(super) fn of(sockets: Vec<ListenerSocket>) -> Listeners {
        let mut known = BTreeMap::<ListenAddress, Vec<OwnedFd>>::new();
        for listener in sockets {
            known
                .entry(listener.address)
                .or_default()
                .push(listener.socket);
        }
        let known = known.into_iter().map(|(address, sockets)| {
            let file = match &address {
                ListenAddress::Unix(path) => Some(SocketFile(path.clone())),
                ListenAddress::Tcp(_) => None,
            };
            let bound = Bound {
                sockets,
                _file: file,
            };
            // What they are set to is not known, and set anew.
            let kept = Kept {
                backlog: 0,
                mode: 0,
                bound: Rc::new(bound),
            };
            (address, kept)
        });
        Listeners(known.collect())
    }

    /// Copies of all sockets, for the server.
    pub(super) fn for_server(&self) -> io::Result<Vec<ListenerSocket>> {
        self.without(&Listeners::default())
    }

    /// Copies of those sockets whose addresses others have not.
    pub(super) fn without(&self, others: &Listeners) -> io::Result<Vec<ListenerSocket>> {
        let mut sockets = Vec::new();
        let own = self.0.iter();
        for (address, kept) in own.filter(|(address, _)| !others.0.contains_key(*address)) {
            for (worker, socket) in kept.bound.sockets.iter().enumerate() {
                let worker = match address {
                    ListenAddress::Tcp(_) => Some(worker),
                    ListenAddress::Unix(_) => None,
                };
                let socket = socket.try_clone()?;
                sockets.push(ListenerSocket {
                    address: address.clone(),
                    worker,
                    socket,
                });
            }
        }
        Ok(sockets)
    }

    /// Says what is new and what is gone since `before`, and sets backlogs and permissions as
    /// configured now.
    pub(super) fn take_over(&self, before: &Listeners) {
        for (address, kept) in &self.0 {
            for socket in &kept.bound.sockets {
                if let Err(error) = net::set_backlog(socket.as_fd(), kept.backlog) {
                    let error = reason(&error);
                    tracing::warn!(address = %shown(address), error, "cannot change a backlog");
                }
            }
            match before.0.get(address) {
                Some(before) if before.mode != kept.mode => permit(address, kept.mode),
                Some(_) => {}
                None => tracing::info!(address = %self.bound_to(address), "listening"),
            }
        }
        for address in before
            .0
            .keys()
            .filter(|address| !self.0.contains_key(address))
        {
            tracing::info!(address = %before.bound_to(address), "no longer listening");
        }
    }

    /// Listens no more, as far as this process is concerned.
    pub(super) fn close(&mut self) {
        Listeners::default().take_over(self);
        self.0.clear();
    }

    /// An address as it is in truth: the port the kernel chose for port 0.
    fn bound_to(&self, address: &ListenAddress) -> String {
        let first = self
            .0
            .get(address)
            .and_then(|kept| kept.bound.sockets.first());
        let local = first.and_then(|socket| net::local_address(socket.as_fd()).ok());
        local.map_or_else(|| shown(address), |local| local.to_string())
    }
}

/// Gives a Unix socket's file other permissions.
fn permit(address: &ListenAddress, mode: u32) {
    let ListenAddress::Unix(path) = address else {
        return;
    };
    if let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(mode)) {
        let error = reason(&error);
        tracing::warn!(address = %shown(address), error, "cannot change a mode");
    }
}

/// The control socket: its owner's alone.
#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
    file: SocketFile,
}

impl Control {
    /// Listens at `path`, or goes on listening there.
    pub(super) fn bind(path: &Path, before: &[Rc<Control>]) -> Result<Rc<Control>, String> {
        if let Some(known) = before.iter().find(|known| known.file.0 == path) {
            return Ok(Rc::clone(known));
        }
        /// People ask now and then.
        const BACKLOG: u32 = 16;
        match net::bind_unix(path, BACKLOG, net::MODE_OWNER) {
            Ok(socket) => Ok(Rc::new(Control {
                socket,
                file: SocketFile(path.to_owned()),
            })),
            Err(error) => Err(format!(
                "listen at control socket {}: {}{}",
                path.display(),
                reason(&error),
                socket_advice(&error)
            )),
        }
    }

    /// That of another supervisor.
    pub(super) fn of(control: SocketAt) -> Rc<Control> {
        Rc::new(Control {
            socket: control.socket,
            file: SocketFile(control.path),
        })
    }

    /// A copy for the server.
    pub(super) fn for_server(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// A copy for another supervisor.
    pub(super) fn to_hand_over(&self) -> io::Result<SocketAt> {
        Ok(SocketAt {
            path: self.file.0.clone(),
            socket: self.socket.try_clone()?,
        })
    }
}

fn bind(listener: &Listener, workers: usize) -> io::Result<Bound> {
    match &listener.address {
        ListenAddress::Unix(path) => {
            let socket = net::bind_unix(path, listener.backlog, listener.mode)?;
            Ok(Bound {
                sockets: vec![socket],
                _file: Some(SocketFile(path.clone())),
            })
        }
        ListenAddress::Tcp(address) => {
            let first = net::bind(&Bind::Tcp(*address), listener.backlog)?;
            // Port 0 is the kernel's choice, once: the other workers get the same port.
            let address = net::local_address(first.as_fd())?;
            let mut sockets = vec![first];
            for _ in 1..workers {
                sockets.push(net::bind(&Bind::Tcp(address), listener.backlog)?);
            }
            Ok(Bound {
                sockets,
                _file: None,
            })
        }
    }
}

fn check_free(listener: &Listener) -> Option<String> {
    match listener.address {
        ListenAddress::Tcp(address) => net::check_free(address)
            .err()
            .map(|error| problem(listener, &error)),
        ListenAddress::Unix(_) => None,
    }
}

fn problem(listener: &Listener, error: &io::Error) -> String {
    let advice = match &listener.address {
        ListenAddress::Unix(_) => socket_advice(error),
        ListenAddress::Tcp(_) => port_advice(error),
    };
    let (address, why) = (shown(&listener.address), reason(error));
    format!("listen at {address}: {why}{advice}")
}

fn port_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another process listens there)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root or CAP_NET_BIND_SERVICE)",
        io::ErrorKind::AddrNotAvailable => " (this machine has no such address)",
        _ => "",
    }
}

fn socket_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another process listens there)",
        io::ErrorKind::PermissionDenied => " (whoever starts nagaya must be able to write there)",
        io::ErrorKind::NotFound => " (its directory must exist)",
        _ => "",
    }
}

fn shown(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}
