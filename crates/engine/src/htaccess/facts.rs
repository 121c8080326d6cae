//! What files are told of a request: a copy of it, for the request goes on to change meanwhile.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use config::model::{Files, Root};
use htaccess::{
    AccessGround, AllowedOptions, Civil, ContextPrefix, Decision, RequestFacts, Variables,
};
use wire::{Fields, RequestHead, Version};

use super::applied::failure;
use super::cache::KnownChain;
use super::walk::{Landing, LandingKind};
use crate::error::Result;
use crate::media_types;

/// A request that files are told of, who asks it, and over what.
#[derive(Debug)]
pub(crate) struct ToldRequest<'a> {
    pub(crate) head: &'a RequestHead,
    /// The path that it has come to.
    pub(crate) uri: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    pub(crate) is_tls: bool,
    /// As the client's URL has it, which Apache goes by: the listener may have another.
    pub(crate) port: u16,
    pub(crate) listener_port: u16,
    pub(crate) client: IpAddr,
    pub(crate) client_port: u16,
    pub(crate) peer: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) now: Civil,
}

/// The site that they belong to.
#[derive(Debug)]
pub(crate) struct ToldSite<'a> {
    pub(crate) name: &'a str,
    pub(crate) files: &'a Files,
    /// Where the path leads: a mount's path, or none, and a root.
    pub(crate) tree: Option<(&'a str, &'a Root)>,
    /// The site's own root.
    pub(crate) root: Option<&'a Root>,
    pub(crate) has_cgi: bool,
}

/// What is told of a request; as [`RequestFacts`] has it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) method: Vec<u8>,
    pub(crate) uri: Vec<u8>,
    pub(crate) query: Option<Vec<u8>>,
    pub(crate) request_line: Vec<u8>,
    pub(crate) protocol: &'static str,
    pub(crate) fields: Fields,
    pub(crate) filename: Vec<u8>,
    pub(crate) is_directory: bool,
    pub(crate) path_info: Vec<u8>,
    pub(crate) root: Vec<u8>,
    /// The path that a mount has, and its root.
    pub(crate) mount: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) is_tls: bool,
    pub(crate) host: Vec<u8>,
    pub(crate) site: Vec<u8>,
    pub(crate) port: u16,
    pub(crate) listener_port: u16,
    pub(crate) client: IpAddr,
    pub(crate) client_port: u16,
    pub(crate) peer: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) media_type: String,
    pub(crate) has_ended: bool,
    pub(crate) is_translated: bool,
    /// The directory whose page it is looked at as.
    pub(crate) page_of: Option<Vec<u8>>,
    pub(crate) decided: Option<Decided>,
    /// The files that are asked.
    pub(crate) known: Option<Arc<KnownChain>>,
    pub(crate) variables: Variables,
    pub(crate) options: AllowedOptions,
    pub(crate) now: Civil,
    pub(crate) spent: u64,
}

/// By what access was decided, and who asked for that.
#[derive(Debug)]
pub(crate) struct Decided {
    ground: AccessGround,
    user: Option<Vec<u8>>,
    /// As long as it is there its files are not understood anew.
    _known: Option<Arc<KnownChain>>,
}

/// Fields of a kind that go with a request into its reply.
const HANDED_ON_MAX: usize = 128;

/// What goes with a request from one path to the next.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// Its variables.
    pub(crate) variables: Variables,
    /// Whether a rule with `END` was met.
    pub(crate) has_ended: bool,
    /// Steps that its files have taken.
    pub(crate) spent: u64,
    /// Whether rules of the virtual host have led to the path.
    pub(crate) is_translated: bool,
    /// The path of the directory whose page it is looked at as.
    pub(crate) page_of: Option<Vec<u8>>,
    /// By what access was decided for the path before.
    pub(crate) decided: Option<Decided>,
    /// Values of `Set-Cookie` for the reply.
    pub(crate) cookies: Vec<Vec<u8>>,
    /// Fields that made a difference: for `Vary`.
    pub(crate) vary: Vec<Vec<u8>>,
}

impl Carried {
    /// Whether nothing does.
    pub(crate) fn is_empty(&self) -> bool {
        let has_fields = !self.cookies.is_empty() || !self.vary.is_empty();
        !self.has_ended && !has_fields && self.variables.iter().next().is_none()
    }

    /// What goes with a request that is sent elsewhere inside.
    ///
    /// # Errors
    /// It is too much.
    pub(crate) fn redirected(decision: &Decision, facts: &Facts) -> Result<Self> {
        if decision.is_translated {
            return Ok(Self {
                is_translated: true,
                ..Self::with(decision, facts)
            });
        }
        let variables = &decision.variables;
        let variables = variables.redirected(&facts.uri, decision.query.as_deref());
        Ok(Self {
            variables: variables.map_err(|stop| failure(&stop, None))?,
            ..Self::with(decision, facts)
        })
    }

    /// What goes with a request whose path files let stand, to the file that answers for it.
    pub(crate) fn with(decision: &Decision, facts: &Facts) -> Self {
        // As in Apache, which keeps what was merged for the directory and not what was for its page:
        // where these differ, the page's is another ground than any that comes after it.
        let before = facts.decided.as_ref().map(|it| &it.ground);
        let is_known = facts.page_of.is_none() || before == decision.ground.as_ref();
        let ground = decision.ground.clone().filter(|_| is_known);
        Self {
            variables: decision.variables.clone(),
            // What a page's rules end is ended for the page alone.
            has_ended: match facts.page_of {
                Some(_) => facts.has_ended,
                None => decision.has_ended,
            },
            spent: decision.spent,
            is_translated: false,
            page_of: None,
            decided: ground.map(|ground| Decided {
                ground,
                user: decision.user.clone(),
                _known: facts.known.clone(),
            }),
            cookies: decision.cookies.clone(),
            vary: decision.vary.clone(),
        }
    }

    /// The same for the page of a failure of this status, be it one: its programs are told.
    pub(crate) fn after_failure(mut self, status: u16) -> Result<Self> {
        if status != 0 {
            let status = status.to_string();
            let set = self.variables.set(b"REDIRECT_STATUS", status.as_bytes());
            set.map_err(|stop| failure(&stop, None))?;
        }
        Ok(self)
    }

    /// Hands on to the next decision what goes into the reply.
    pub(crate) fn hand_on(fields: [Vec<Vec<u8>>; 2], decision: &mut Decision) {
        for (before, said) in fields
            .into_iter()
            .zip([&mut decision.cookies, &mut decision.vary])
        {
            let more = std::mem::replace(said, before);
            // Of a cookie the first one is set.
            let name = |value: &[u8]| value.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
            for value in more {
                let is_new = !said.iter().any(|it| name(it) == name(&value));
                if said.len() < HANDED_ON_MAX && is_new {
                    said.push(value);
                }
            }
        }
    }
}

impl Facts {
    /// What is told of a request that has come to this landing.
    pub(crate) fn new(
        asked: &ToldRequest<'_>,
        site: &ToldSite<'_>,
        landing: &Landing,
        carried: Carried,
    ) -> Self {
        let head = asked.head;
        // What has no file is called as in the path.
        let name = site.tree.map(|(_, root)| root_name(root));
        let filename = [&*name.unwrap_or_else(|| b"/".to_vec()), &*landing.relative].concat();
        let plain = |root: &Root| {
            let mut name = root_name(root);
            name.pop();
            name
        };
        let mount = site.tree.filter(|(path, _)| !path.is_empty());
        let root = site.root.or(site.tree.map(|(_, root)| root));
        let protocol = match head.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http2 => "HTTP/2.0",
            _ => "HTTP/1.1",
        };
        let line = [head.sent_method(), head.target(), protocol.as_bytes()];
        Self {
            // A page is looked at in a request of its own.
            method: match carried.page_of {
                Some(_) => b"GET".to_vec(),
                None => head.method_bytes().to_vec(),
            },
            uri: asked.uri.to_vec(),
            query: asked.query.map(<[u8]>::to_vec),
            request_line: line.join(&b' '),
            protocol,
            fields: head.fields.clone(),
            media_type: media_types::of(site.files, &filename).into_owned(),
            filename,
            is_directory: landing.kind == LandingKind::Directory,
            path_info: landing.path_info.clone(),
            root: root.map(plain).unwrap_or_default(),
            mount: mount.map(|(path, root)| (path.as_bytes().to_vec(), plain(root))),
            is_tls: asked.is_tls,
            host: head.host().as_bytes().to_vec(),
            site: site.name.as_bytes().to_vec(),
            port: asked.port,
            listener_port: asked.listener_port,
            client: asked.client,
            client_port: asked.client_port,
            peer: asked.peer,
            server: asked.server,
            has_ended: carried.has_ended,
            is_translated: carried.is_translated,
            page_of: carried.page_of,
            decided: carried.decided,
            known: None,
            variables: carried.variables,
            options: options(site.files.listing, site.has_cgi),
            now: asked.now,
            spent: carried.spent,
        }
    }

    /// The fields, as they are told.
    pub(crate) fn pairs(&self) -> Vec<(&[u8], &[u8])> {
        let fields = self.fields.iter();
        fields.map(|field| (field.name, field.value)).collect()
    }

    /// As files are told.
    pub(crate) fn told<'a>(
        &'a self,
        fields: &'a [(&'a [u8], &'a [u8])],
        own_hosts: &'a [&'a [u8]],
    ) -> RequestFacts<'a> {
        RequestFacts {
            method: &self.method,
            uri: &self.uri,
            query: self.query.as_deref(),
            request_line: &self.request_line,
            protocol: self.protocol,
            fields,
            filename: &self.filename,
            is_directory: self.is_directory,
            path_info: &self.path_info,
            root: &self.root,
            context: self
                .mount
                .as_ref()
                .map(|(prefix, root)| ContextPrefix { prefix, root }),
            is_tls: self.is_tls,
            host: &self.host,
            own_hosts,
            port: self.port,
            listener_port: self.listener_port,
            client: self.client,
            client_port: self.client_port,
            peer: self.peer,
            server: self.server,
            software: "nagaya",
            admin: "",
            media_type: Some(&self.media_type),
            // A page is asked for anew, whatever its directory's rules have ended.
            has_ended: self.has_ended && self.page_of.is_none(),
            is_translated: self.is_translated,
            is_subrequest: self.page_of.is_some(),
            decided: (self.decided.as_ref()).map(|it| (&it.ground, it.user.as_deref())),
            variables: &self.variables,
            options: self.options,
            now: self.now,
            spent: self.spent,
        }
    }
}

/// The full name of a root, a slash at its end.
pub(super) fn root_name(root: &Root) -> Vec<u8> {
    let mut name = root.path.as_os_str().as_bytes().to_vec();
    if !name.ends_with(b"/") {
        name.push(b'/');
    }
    name
}

/// What holds where no file says otherwise: links are followed as the site has it.
fn options(lists: bool, has_cgi: bool) -> AllowedOptions {
    let word = |word: &[u8]| AllowedOptions::of_word(word).unwrap_or(AllowedOptions::NONE);
    let mut options = word(b"FollowSymLinks");
    if lists {
        options = options.with(word(b"Indexes"));
    }
    if has_cgi {
        options = options.with(word(b"ExecCGI"));
    }
    options
}
