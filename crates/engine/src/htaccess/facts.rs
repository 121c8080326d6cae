//! What files are told of a request: a copy of it, for the request goes on to change meanwhile.

use std::net::IpAddr;
use std::sync::Arc;

use htaccess::{
    AccessGround, AllowedOptions, Civil, ContextPrefix, Decision, RequestFacts, Variables,
};
use wire::Fields;

use super::applied::failure;
use super::cache::KnownChain;
use crate::error::Result;

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
    pub(crate) client: IpAddr,
    pub(crate) client_port: u16,
    pub(crate) peer: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) media_type: String,
    pub(crate) has_ended: bool,
    pub(crate) is_translated: bool,
    pub(crate) is_page: bool,
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
    /// Whether it is looked at as the page of the path before.
    pub(crate) is_page: bool,
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
        Self {
            variables: decision.variables.clone(),
            has_ended: decision.has_ended,
            spent: decision.spent,
            is_translated: false,
            is_page: false,
            decided: decision.ground.clone().map(|ground| Decided {
                ground,
                user: decision.user.clone(),
                _known: facts.known.clone(),
            }),
            cookies: decision.cookies.clone(),
            vary: decision.vary.clone(),
        }
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
            client: self.client,
            client_port: self.client_port,
            peer: self.peer,
            server: self.server,
            software: "nagaya",
            admin: "",
            media_type: Some(&self.media_type),
            has_ended: self.has_ended,
            is_translated: self.is_translated,
            is_subrequest: self.is_page,
            decided: (self.decided.as_ref()).map(|it| (&it.ground, it.user.as_deref())),
            variables: &self.variables,
            options: self.options,
            now: self.now,
            spent: self.spent,
        }
    }
}
