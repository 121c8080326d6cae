//! HTTP/2 in the generator: its connections, and the streams that carry exchanges over them.
//!
//! The idea: the crate `h2` knows frames, HPACK and windows, and is polled by the event loop that
//! HTTP/1.1 has, without a runtime: requests go out when they are due and not with the tick of a
//! timer. To the rest of the generator a stream is what a connection is in HTTP/1.1: it carries one
//! exchange at a time.

mod head;
mod link;
mod stream;
mod wake;
mod wire;

use std::sync::Arc;

use slab::Slab;

pub(crate) use head::Head;
pub(crate) use link::{Link, LinkName};
pub(crate) use stream::{Came, Stream};
pub(crate) use wake::{WakeList, Woken};
pub(crate) use wire::Wire;

use super::plan::Protocol;

/// One of the plan's connections: the link that new streams go over, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct LinkPlace {
    pub(crate) link: Option<LinkName>,
    /// Streams that wait for the link to be there.
    pub(crate) waiting: Vec<usize>,
}

/// The links and streams of a thread; there are none in HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Http2 {
    /// Of each connection.
    pub(crate) each: usize,
    pub(crate) places: Vec<LinkPlace>,
    /// Those of the places, and those that only finish what was begun.
    pub(crate) links: Slab<Link>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) list: Arc<WakeList>,
    /// Told apart from links that had the same place in the slab before.
    pub(crate) generation: u32,
}

impl Http2 {
    /// For so many connections.
    pub(crate) fn new(protocol: Protocol, connections: usize) -> Http2 {
        let (each, connections) = match protocol {
            Protocol::Http1 => (1, 0),
            Protocol::Http2 { streams } => (streams, connections),
        };
        let list = Arc::<WakeList>::default();
        let streams = (0..connections * each).map(|index| Stream::new(index, &list));
        Http2 {
            each,
            places: (0..connections).map(|_| LinkPlace::default()).collect(),
            links: Slab::new(),
            streams: streams.collect(),
            list,
            generation: 0,
        }
    }

    pub(crate) fn is_spoken(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether somebody waits to be polled.
    pub(crate) fn has_woken(&self) -> bool {
        self.is_spoken() && !self.list.is_empty()
    }

    /// A link, if it is still there.
    pub(crate) fn link(&mut self, name: LinkName) -> Option<&mut Link> {
        let link = self.links.get_mut(name.at)?;
        (link.name == name).then_some(link)
    }

    /// The place of a stream.
    pub(crate) fn place_of(&self, stream: usize) -> usize {
        stream / self.each.max(1)
    }

    /// Sends nothing new over a link; it goes when nothing is under way on it.
    pub(crate) fn retire(&mut self, name: LinkName) {
        let Some(link) = self.link(name) else {
            return;
        };
        let (place, is_done) = (link.place, link.live == 0);
        if let Some(place) = self.places.get_mut(place)
            && place.link == Some(name)
        {
            place.link = None;
        }
        if is_done {
            self.links.remove(name.at);
        }
    }

    /// A stream has nothing more to do with its link; what was under way is reset.
    pub(crate) fn leave(&mut self, stream: usize) {
        let place = self.place_of(stream);
        let name = self.streams.get_mut(stream).and_then(Stream::clear);
        let Some(place) = self.places.get_mut(place) else {
            return;
        };
        let current = place.link;
        let Some(name) = name else {
            let waited = place.waiting.len();
            place.waiting.retain(|waiting| *waiting != stream);
            // Whoever waited last takes a connection along that does not come about.
            if waited > 0
                && place.waiting.is_empty()
                && let Some(name) = current
            {
                self.retire(name);
            }
            return;
        };
        if let Some(link) = self.link(name) {
            link.live = link.live.saturating_sub(1);
            if current != Some(name) {
                self.retire(name);
            }
        }
    }
}
