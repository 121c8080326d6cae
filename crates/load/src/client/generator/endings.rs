//! How exchanges end: whole, broken, or too late.

use std::io::ErrorKind;

use super::Generator;
use crate::client::io::Io;
use crate::client::outcome::FirstReply;
use crate::client::plan::{Address, Pace, Reuse};
use crate::client::pulse::nanoseconds;
use crate::client::recorder::{Class, Whole};

/// What a whole reply said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body_bytes: u64,
    /// Whether the server lets the connection be kept.
    pub(super) keeps: bool,
}

impl Generator<'_> {
    pub(super) fn complete(&mut self, index: usize) {
        let connection = &self.connections[index];
        let scanner = &connection.scanner;
        let reply = Reply {
            status: scanner.status(),
            body_bytes: scanner.body_bytes(),
            keeps: scanner.keep(),
        };
        if self.recorder.first.is_none() && connection.carried.is_some() {
            self.recorder.first = Some(FirstReply {
                server: scanner.server().to_owned(),
                body_bytes: reply.body_bytes,
                tls: connection.io.as_ref().and_then(Io::tls_facts),
                status: reply.status,
                streams_max: None,
            });
        }
        self.complete_with(index, reply);
    }

    /// A reply is whole: counts it, and goes on.
    pub(super) fn complete_with(&mut self, index: usize, reply: Reply) {
        let connection = &mut self.connections[index];
        let Some(carried) = connection.carried.take() else {
            return;
        };
        let request = &self.shared.plan.requests[carried.request as usize];
        let whole = Whole {
            request: carried.request,
            status: reply.status,
            body_bytes: reply.body_bytes,
            kept: carried.kept,
            keeps: reply.keeps,
            due_ns: carried.due_ns,
            start_ns: carried.start_ns,
            connected_ns: carried.connected_ns,
            sent_ns: carried.sent_ns,
            first_ns: carried.first_ns,
            end_ns: self.now_ns,
        };
        self.recorder
            .whole(&whole, self.shared.first_length(whole.body_bytes));
        self.shared.open_gate();
        connection.served = connection.served.saturating_add(1);
        connection.failures = 0;
        let reusable = match self.shared.plan.reuse {
            Reuse::Keep => true,
            Reuse::Close => false,
            Reuse::Requests(most) => connection.served < most,
        };
        let sent = carried.written == request.bytes.len();
        if !(reusable && sent && reply.keeps && connection.io.is_some()) {
            connection.close();
        }
        self.busy -= 1;
        if self.shared.plan.pace == Pace::Closed {
            self.next(index);
        } else {
            self.set_free(index);
        }
    }

    pub(super) fn fail_framing(&mut self, index: usize, fault: &'static str) {
        let error = std::io::Error::other(fault);
        self.fail(index, Class::Framing, Some(&error));
    }

    pub(super) fn fail(&mut self, index: usize, class: Class, error: Option<&std::io::Error>) {
        if self.http2.is_spoken() {
            self.leave_failed(index, class);
        }
        let connection = &mut self.connections[index];
        let endpoint = &self.shared.routes.endpoints[connection.endpoint];
        let words = || {
            (
                error.and_then(std::io::Error::raw_os_error),
                failure_words(class, &endpoint.address, error),
            )
        };
        match connection.carried.take() {
            Some(carried) => {
                let at = (carried.request, carried.due_ns, self.now_ns);
                self.recorder.failed(class, at, words);
                self.busy -= 1;
            }
            None => self.recorder.note(class, words),
        }
        self.shared.open_gate();
        connection.close();
        connection.failures = connection.failures.saturating_add(1);
        let rest_ns = connection.rest_ns(matches!(class, Class::Connect | Class::Tls));
        self.rest(index, self.now_ns + rest_ns);
    }

    /// Ends what has taken too long.
    pub(super) fn sweep(&mut self) {
        self.next_sweep_ns = self.now_ns + self.sweep_ns;
        let timeout_ns = nanoseconds(self.shared.plan.timeout);
        let requests = &self.shared.plan.requests;
        let patience = |request: u32| requests[request as usize].patience;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.is_overdue(self.now_ns, timeout_ns)
                || connection.is_given_up(self.now_ns, patience)
            {
                self.fail(index, Class::Timeout, None);
            }
        }
    }
}

fn failure_words(class: Class, address: &Address, error: Option<&std::io::Error>) -> String {
    let shown = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    let cause = match error {
        Some(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            return format!(
                "connect to {shown}: no local port is left. Ports rest for a minute after each \
                 connection: keep connections, make fewer of them, or widen \
                 net.ipv4.ip_local_port_range"
            );
        }
        Some(error) => error.to_string(),
        None => String::new(),
    };
    match class {
        Class::Connect => format!("connect to {shown}: {cause}"),
        Class::Tls => format!("agree on TLS with {shown}: {cause}"),
        // HTTP/2 resets streams, and says why a connection ends.
        Class::Reset if is_of_http2(error) => format!("{shown} reset the stream: {cause}"),
        Class::Closed if is_of_http2(error) => format!("{shown} ended the connection: {cause}"),
        Class::Reset => format!("{shown} reset the connection: {cause}"),
        Class::Closed => format!("{shown} closed the connection before its reply was whole"),
        Class::Timeout => format!("{shown} was silent or slow for longer than its client waits"),
        Class::Framing => format!("{shown} sent a reply that cannot be trusted: {cause}"),
        Class::Write => format!("send to {shown}: {cause}"),
    }
}

/// What the system says has another kind.
fn is_of_http2(error: Option<&std::io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == ErrorKind::Other)
}
