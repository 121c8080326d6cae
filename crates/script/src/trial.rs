//! A made-up request: what `nagaya script run` shows a script, and tests.
//!
//! Everything can be read and written; what needs the engine raises.

use std::collections::HashMap;
use std::fs::{self, File};
use std::future::{Future, ready};
use std::io::{self, Read as _};
use std::path::Path;
use std::pin::Pin;
use std::time::SystemTime;

use os::cgroup::Layout;

use crate::request::{Property, Refused, Request, Side};
use crate::scope::Scope;
use crate::settings::{Read, Reader, Waiting};
use crate::wait::{Ask, Woken};

const CONTENT_TYPE: &[u8] = b"Content-Type";

/// A request out of nothing.
#[derive(Debug, Default)]
pub struct Trial {
    /// What its scripts left behind.
    pub scope: Scope,
    /// Its properties.
    pub properties: HashMap<Property, Vec<u8>>,
    /// Fields of the request, in order.
    pub fields_in: Vec<(Vec<u8>, Vec<u8>)>,
    /// Fields of the reply, in order.
    pub fields_out: Vec<(Vec<u8>, Vec<u8>)>,
    /// Fields of the upstream's reply, in order.
    pub fields_upstream: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
    /// Where groups are made for its program, by their names; empty is nowhere.
    pub layout: Layout,
}

impl Trial {
    /// A GET of `target` (path and query) for `example.test`.
    pub fn get(target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let known = [
            (Property::Id, "0000000000000001"),
            (Property::Method, "GET"),
            (Property::Uri, path),
            (Property::UnparsedUri, target),
            (Property::Protocol, "HTTP/1.1"),
            (Property::Scheme, "http"),
            (Property::Host, "example.test"),
            (Property::HttpHost, "example.test"),
            (Property::SiteName, "example.test"),
            (Property::Tenant, "example.test"),
            (Property::DocumentRoot, "/srv/www"),
            (Property::RemoteAddress, "192.0.2.1"),
            (Property::RemotePort, "40000"),
            (Property::LocalAddress, "192.0.2.80"),
            (Property::LocalPort, "80"),
            (Property::RequestTime, "0.001"),
        ];
        let mut trial = Self::default();
        for (property, value) in known {
            trial.properties.insert(property, value.into());
        }
        if let Some(query) = query {
            trial.properties.insert(Property::Args, query.into());
        }
        let file = format!("/srv/www{path}");
        trial.properties.insert(Property::Filename, file.into());
        let line = format!("GET {target} HTTP/1.1");
        trial.properties.insert(Property::RequestLine, line.into());
        trial.fields_in = vec![(b"Host".to_vec(), b"example.test".to_vec())];
        trial
    }

    fn side(&self, side: Side) -> &Vec<(Vec<u8>, Vec<u8>)> {
        match side {
            Side::In => &self.fields_in,
            Side::Out => &self.fields_out,
            Side::Upstream => &self.fields_upstream,
        }
    }
}

impl Request for Trial {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn read(&self, property: Property, out: &mut Vec<u8>) -> bool {
        if property == Property::ContentType {
            let mut field = self.fields_out.iter();
            let field = field.rfind(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE));
            out.extend_from_slice(field.map_or(b"", |(_, value)| value));
            return field.is_some();
        }
        match self.properties.get(&property) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    }

    /// Nothing is configured: any name will do, and is its own server.
    fn server_of(&self, upstream: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(upstream);
        true
    }

    fn group(&self, name: &str) -> Option<(&Layout, Vec<String>)> {
        Some((&self.layout, vec![name.to_owned()]))
    }

    fn write(&mut self, property: Property, value: &[u8]) -> Result<(), Refused> {
        if property == Property::ContentType {
            return self.set_field(Side::Out, CONTENT_TYPE, &[value]);
        }
        self.properties.insert(property, value.to_vec());
        Ok(())
    }

    fn field(&self, side: Side, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        for (known, value) in self.side(side) {
            if known.eq_ignore_ascii_case(name) {
                each(value);
            }
        }
    }

    fn fields(&self, side: Side, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in self.side(side) {
            each(name, value);
        }
    }

    fn set_field(&mut self, side: Side, name: &[u8], values: &[&[u8]]) -> Result<(), Refused> {
        if values
            .iter()
            .any(|value| value.iter().any(|byte| b"\r\n\0".contains(byte)))
        {
            let name = String::from_utf8_lossy(name);
            return Err(Refused(format!("no line breaks in the field {name}")));
        }
        let fields = match side {
            Side::In => &mut self.fields_in,
            Side::Out => &mut self.fields_out,
            Side::Upstream => {
                return Err(Refused("the upstream's fields can only be read".to_owned()));
            }
        };
        fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        fields.extend(values.iter().map(|value| (name.to_vec(), value.to_vec())));
        Ok(())
    }

    fn perform<'a>(&'a mut self, ask: Ask) -> Pin<Box<dyn Future<Output = Woken> + 'a>> {
        let woken = match ask {
            Ask::Body { bytes_max } if self.body.len() > bytes_max => {
                Woken::error(format!("the body is longer than {bytes_max} bytes"))
            }
            Ask::Body { .. } => Woken::Value(self.body.clone().into()),
            Ask::Acquire { .. } => Woken::Value(true.into()),
            Ask::SubRequest { .. } => Woken::error("a made-up request has no server to ask"),
        };
        Box::pin(ready(woken))
    }
}

/// Reads files at once: where nobody else waits for the thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Reader for Files {
    fn read(&self, path: &Path, bytes_max: usize) -> Waiting<io::Result<Read>> {
        Box::pin(ready(read(path, bytes_max)))
    }

    fn changed(&self, path: &Path) -> Waiting<io::Result<SystemTime>> {
        Box::pin(ready(fs::metadata(path).and_then(|meta| meta.modified())))
    }
}

fn read(path: &Path, bytes_max: usize) -> io::Result<Read> {
    let file = File::open(path)?;
    let changed = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Read { changed, bytes })
}
