//! A thread that speaks with another process of the gateway over one link after another.
//!
//! The idea: each start of that process, or of this one, brings a new link; the thread takes the newest and ends
//! with its owner. What is said over a link is the thread's own.

use std::io;

use tokio::sync::mpsc;

/// Links that wait to be used: each process that is started has one.
const LINKS_MAX: usize = 16;

/// The thread, from outside; it ends with this.
#[derive(Debug)]
pub(crate) struct LinkedThread<Link> {
    with: &'static str,
    links: Option<mpsc::Sender<Link>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<Link> LinkedThread<Link> {
    /// Begins without a link: `body` speaks with whom the text says, and ends when there are no more links.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start(
        name: &str,
        with: &'static str,
        body: impl FnOnce(mpsc::Receiver<Link>) + Send + 'static,
    ) -> io::Result<Self>
    where
        Link: Send + 'static,
    {
        let (links, received) = mpsc::channel(LINKS_MAX);
        let thread = std::thread::Builder::new().name(name.to_owned());
        Ok(Self {
            with,
            links: Some(links),
            thread: Some(thread.spawn(move || body(received))?),
        })
    }

    /// Speaks over this link from now on.
    pub(crate) fn use_link(&self, link: Link) {
        let sent = self.links.as_ref().map(|links| links.try_send(link));
        if let Some(Err(error)) = sent {
            tracing::error!("{} is not spoken with: {error}", self.with);
        }
    }
}

impl<Link> Drop for LinkedThread<Link> {
    fn drop(&mut self) {
        drop(self.links.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Says why there is nobody to speak with, unless the process has ended: that the supervisor says.
pub(crate) fn tell_lost(with: &str, error: &io::Error) {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if !matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
        let error = config::reason(error);
        tracing::error!(
            error,
            "{with} is spoken with no more until it is started again"
        );
    }
}
