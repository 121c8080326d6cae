//! The byte form of [`Sources`], as handed to another process of the same build.
//!
//! The idea: every field in order, every run of bytes behind its length; nothing is skipped or
//! guessed, and a reader that runs dry or finds bytes left over has damaged bytes before it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::include::Broken;
use crate::looks::Existence;
use crate::model::FileIdentity;
use crate::sources::{Overrides, SourceFile, Sources};

/// First bytes of the form; changes whenever the form does.
const MAGIC: &[u8; 8] = b"nagaya07";

pub(crate) fn pack(sources: &Sources) -> Vec<u8> {
    let mut out = Packer {
        bytes: MAGIC.to_vec(),
    };
    out.number(sources.cores);
    out.number(usize::from(sources.existence == Existence::Checked));
    out.number(sources.files.len());
    for file in &sources.files {
        out.file(file);
    }
    match &sources.overrides {
        Overrides::Absent => out.number(0),
        Overrides::Read(file) => {
            out.number(1);
            out.file(file);
        }
        Overrides::Unread(name, why) => {
            out.number(2);
            out.text(name);
            out.text(why);
        }
    }
    out.number(sources.broken_includes.len());
    for (file, pattern, why) in &sources.broken_includes {
        out.number(*file);
        out.text(pattern);
        out.text(why);
    }
    out.number(sources.data.len());
    for (path, found) in &sources.data {
        out.path(path);
        out.outcome(found.as_deref());
    }
    out.number(sources.directories.len());
    for (path, found) in &sources.directories {
        out.path(path);
        out.outcome(found.as_ref().map(|()| &[][..]));
    }
    out.number(sources.libraries.len());
    for (directory, found) in &sources.libraries {
        out.path(directory);
        out.outcome(found.as_ref().map(|_| &[][..]));
        let files = found.as_ref().ok();
        out.number(files.map_or(0, BTreeSet::len));
        for file in files.into_iter().flatten() {
            out.path(file);
        }
    }
    out.number(sources.canonical.len());
    for (path, canonical) in &sources.canonical {
        out.path(path);
        out.path(canonical);
    }
    pack_identities(&mut out, sources);
    out.number(sources.phps.len());
    for (version, program) in &sources.phps {
        out.text(version);
        out.path(program);
    }
    out.bytes
}

fn pack_identities(out: &mut Packer, sources: &Sources) {
    out.number(sources.identities.len());
    for (path, identity) in &sources.identities {
        out.path(path);
        for number in [identity.device, identity.inode, identity.born_ns] {
            out.long(number);
        }
    }
    out.number(sources.open_to_others.len());
    for path in &sources.open_to_others {
        out.path(path);
    }
}

pub(crate) fn unpack(bytes: &[u8]) -> Option<Sources> {
    let mut input = Unpacker {
        rest: bytes.strip_prefix(MAGIC)?,
    };
    let cores = input.number()?;
    let existence = match input.number()? {
        0 => Existence::Assumed,
        _ => Existence::Checked,
    };
    let mut sources = Sources::empty(cores, existence);
    for _ in 0..input.number()? {
        sources.files.push(input.file()?);
    }
    sources.overrides = match input.number()? {
        0 => Overrides::Absent,
        1 => Overrides::Read(input.file()?),
        _ => Overrides::Unread(input.text()?, input.text()?),
    };
    for _ in 0..input.number()? {
        let broken = (input.number()?, input.text()?, input.text()?);
        sources.broken_includes.push(broken);
    }
    for _ in 0..input.number()? {
        let (path, found) = (input.path()?, input.outcome()?);
        sources.data.insert(path, found.map(<[u8]>::to_vec));
    }
    for _ in 0..input.number()? {
        let (path, found) = (input.path()?, input.outcome()?);
        sources.directories.insert(path, found.map(|_| ()));
    }
    for _ in 0..input.number()? {
        let (directory, found) = (input.path()?, input.outcome()?);
        let mut files = BTreeSet::new();
        for _ in 0..input.number()? {
            files.insert(input.path()?);
        }
        sources.libraries.insert(directory, found.map(|_| files));
    }
    for _ in 0..input.number()? {
        let (path, canonical) = (input.path()?, input.path()?);
        sources.canonical.insert(path, canonical);
    }
    for _ in 0..input.number()? {
        let path = input.path()?;
        let identity = FileIdentity {
            device: input.long()?,
            inode: input.long()?,
            born_ns: input.long()?,
        };
        sources.identities.insert(path, identity);
    }
    for _ in 0..input.number()? {
        sources.open_to_others.insert(input.path()?);
    }
    for _ in 0..input.number()? {
        let (version, program) = (input.text()?, input.path()?);
        sources.phps.insert(version, program);
    }
    input.rest.is_empty().then_some(sources)
}

struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    fn number(&mut self, number: usize) {
        self.long(number as u64);
    }

    fn long(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn run(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.run(text.as_bytes());
    }

    fn path(&mut self, path: &Path) {
        self.run(path.as_os_str().as_bytes());
    }

    fn file(&mut self, file: &SourceFile) {
        self.text(&file.name);
        self.path(&file.directory);
        self.text(&file.text);
    }

    fn outcome(&mut self, outcome: Result<&[u8], &String>) {
        self.number(usize::from(outcome.is_ok()));
        self.run(outcome.unwrap_or_else(|why| why.as_bytes()));
    }
}

struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    fn number(&mut self) -> Option<usize> {
        usize::try_from(self.long()?).ok()
    }

    fn long(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn run(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (run, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(run)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.run()?.to_vec()).ok()
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(PathBuf::from(OsString::from_vec(self.run()?.to_vec())))
    }

    fn file(&mut self) -> Option<SourceFile> {
        Some(SourceFile {
            name: self.text()?,
            directory: self.path()?,
            text: self.text()?,
            broken: Broken::Refuse,
            unread: None,
        })
    }

    fn outcome(&mut self) -> Option<Result<&'a [u8], String>> {
        let fine = self.number()? == 1;
        let run = self.run()?;
        Some(if fine {
            Ok(run)
        } else {
            Err(String::from_utf8(run.to_vec()).ok()?)
        })
    }
}
