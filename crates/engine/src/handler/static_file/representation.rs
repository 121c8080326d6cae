//! What a client is sent of a file: its bytes in one coding, and the fields that go with them.
//!
//! Made once and kept with the file for as long as that is cached. Small content is held in memory under the worker's budget; of the rest only
//! the descriptor is kept.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;

use os::file::FileFacts;
use wire::Fields;

use crate::compression::{self, Coding};
use crate::error::{Error, Kind, Result};
use crate::helper::Lane;
use crate::media_types;
use crate::resolve::file::{File, Handle};
use crate::resolve::kept::{Content, OpenFile, Representation};
use crate::stage::Routed;

/// What representations of one site's file are made from.
#[derive(Clone, Copy)]
pub(super) struct Maker<'a> {
    pub(super) routed: Routed<'a>,
    /// The name that decides the type: for a sibling that of the file itself.
    pub(super) name: &'a [u8],
}

impl Maker<'_> {
    /// A file as it is. `coding` says what a sibling's bytes are.
    pub(super) async fn whole<'f>(
        &self,
        file: &'f File,
        coding: Option<Coding>,
    ) -> Result<&'f Representation> {
        if let Some(known) = file.kept.whole.get() {
            return Ok(known);
        }
        let Some(handle) = file.handle() else {
            return Err(Error::new(Kind::Internal, "file_handle", String::new()));
        };
        let content = match self.read_small(file, &handle).await? {
            Some(content) => content,
            None => Content::Open(OpenFile {
                handle,
                lane: file.lane,
                size: file.facts.size,
                warm_ms: Cell::new(None),
            }),
        };
        let made = Representation {
            fields: self.fields(&file.facts, coding, Made::AsStored),
            etag: etag(&file.facts, coding),
            modified_s: file.facts.modified_s,
            size: file.facts.size,
            content,
        };
        let in_memory = matches!(made.content, Content::Memory(..));
        let known = file.kept.whole.get_or_init(|| made);
        if in_memory {
            file.forget_handle();
        }
        Ok(known)
    }

    /// A file compressed here; `None` where that is not worth it or nobody is free to do it.
    pub(super) async fn coded(
        &self,
        file: &File,
        coding: Coding,
    ) -> Result<Option<Rc<Representation>>> {
        let Some(place) = file.kept.coded.get(coding as usize) else {
            return Ok(None);
        };
        if let Some(known) = place.get() {
            return Ok(known.clone());
        }
        let whole = self.whole(file, None).await?;
        let room = usize::try_from(whole.size).unwrap_or(usize::MAX);
        let Some(share) = self.routed.serving.files.memory(room) else {
            return Ok(None);
        };
        let made = match self.compress(whole, room, coding).await? {
            compression::Made::Busy => return Ok(None),
            compression::Made::Nothing => None,
            compression::Made::Smaller(bytes) => Some(Rc::new(Representation {
                fields: self.fields(&file.facts, Some(coding), Made::Here),
                etag: etag(&file.facts, Some(coding)),
                modified_s: whole.modified_s,
                size: bytes.len() as u64,
                content: {
                    let share = share.shrunk_to(bytes.len());
                    Content::Memory(bytes, share)
                },
            })),
        };
        Ok(place.get_or_init(|| made).clone())
    }

    async fn compress(
        &self,
        whole: &Representation,
        bytes: usize,
        coding: Coding,
    ) -> Result<compression::Made> {
        let helpers = &self.routed.worker.helpers;
        let level = self.routed.site.compress.level;
        match &whole.content {
            Content::Memory(bytes, _) => compression::held(helpers, bytes, (coding, level)).await,
            Content::Open(file) => {
                let (handle, size) = (Arc::clone(&file.handle), whole.size);
                let content = move || Ok(read_exactly(handle.as_fd(), size)?.into());
                compression::read(helpers, bytes, (coding, level), content).await
            }
        }
    }

    /// The content of a small file, if there is room for it.
    async fn read_small(&self, file: &File, handle: &Arc<Handle>) -> Result<Option<Content>> {
        let size = usize::try_from(file.facts.size).unwrap_or(usize::MAX);
        if size
            > self
                .routed
                .serving
                .generation
                .process
                .caps
                .cached_file_bytes
        {
            return Ok(None);
        }
        let Some(share) = self.routed.serving.files.memory(size) else {
            return Ok(None);
        };
        let facts = file.facts;
        let in_memory = file.lane == Lane::Local
            && os::file::pages_cached(handle.as_fd(), 0, facts.size).unwrap_or(false);
        let read = if in_memory {
            read_unchanged(handle.as_fd(), &facts)
        } else {
            let held = Arc::clone(handle);
            let work = move || read_unchanged(held.as_fd(), &facts);
            handle.run(work).await?
        };
        let bytes = read.map_err(|error| cannot_read(&error))?;
        Ok(bytes.map(|bytes| Content::Memory(bytes.into(), share)))
    }

    fn fields(&self, facts: &FileFacts, coding: Option<Coding>, made: Made) -> Fields {
        let mut fields = Fields::default();
        let content_type = media_types::of(&self.routed.site.files, self.name);
        fields.push(b"Content-Type", content_type.as_bytes());
        if let Some(coding) = coding {
            fields.push(b"Content-Encoding", coding.name().as_bytes());
        }
        if coding.is_some() || self.varies(&content_type) {
            fields.push(b"Vary", b"Accept-Encoding");
        }
        // A date in the future would say that the content is newer than the reply.
        let modified_s = facts.modified_s.min(self.routed.worker.clock.unix_s());
        fields.push(b"Last-Modified", &wire::date::format(modified_s));
        fields.push(b"ETag", &etag(facts, coding));
        if made == Made::AsStored {
            fields.push(b"Accept-Ranges", b"bytes");
        }
        fields
    }

    /// Whether it is to be compressed here, being of that size.
    pub(super) fn is_compressed(&self, bytes: usize) -> bool {
        let files = &self.routed.site.files;
        compression::is_sized(files, bytes) && self.is_text(&media_types::of(files, self.name))
    }

    fn is_text(&self, content_type: &str) -> bool {
        media_types::is_compressed(&self.routed.site.compress, content_type.as_bytes())
    }

    fn varies(&self, content_type: &str) -> bool {
        let files = &self.routed.site.files;
        (files.compress || files.precompressed) && self.is_text(content_type)
    }
}

/// Where a representation's bytes come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    AsStored,
    /// Compressed on the fly: parts of it are not to be had.
    Here,
}

/// Size and time of the content, and its coding: the same on every machine that has a copy.
fn etag(facts: &FileFacts, coding: Option<Coding>) -> Vec<u8> {
    let (size, seconds, fraction) = (facts.size, facts.modified_s, facts.modified_ns);
    match coding {
        None => format!("\"{size:x}-{seconds:x}.{fraction:x}\""),
        Some(coding) => format!("\"{size:x}-{seconds:x}.{fraction:x}-{}\"", coding.tag()),
    }
    .into_bytes()
}

/// The whole content; `None` if the file changed meanwhile, so that bytes and facts might not match.
fn read_unchanged(file: BorrowedFd<'_>, facts: &FileFacts) -> io::Result<Option<Vec<u8>>> {
    let bytes = match read_exactly(file, facts.size) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    Ok((os::file::facts(file)? == *facts).then_some(bytes))
}

fn read_exactly(file: BorrowedFd<'_>, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?];
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        match os::file::read_at(file, room, filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(bytes)
}

pub(super) fn cannot_read(error: &io::Error) -> Error {
    Error::io(Kind::Internal, "file_read", error)
}
