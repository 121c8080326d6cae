//! Which certificate the name leads to that a client asks for: by its site, by its row, or by an order.
//!
//! A row that cannot be had in time stops no handshake: then the name is looked for among all certificates, and the
//! request is told what is the matter.

use std::sync::Arc;

use config::model::Acceptor;
use ipc::certificates::Certificate;
use wire::client_hello::ClientHello;

use super::{Handshake, INTERNAL_ERROR, Over, UNRECOGNIZED_NAME};
use crate::directory::find::{self, Asking};
use crate::site::Site;
use crate::tls::obtain::{Accepts, note_use, obtain};
use crate::tls::table::CertificateTable;

/// What a handshake knows of the row of the name that it is for.
#[derive(Debug)]
pub(super) enum NamedRow {
    /// Nothing: no row is asked for, or none was to be had.
    Unknown,
    /// There is none.
    Missing,
    /// The site that it makes, and the index of the one that that is stamped of.
    Site(u32, Arc<Site>),
}

impl NamedRow {
    /// The index of the site that stands for the row's.
    pub(super) fn index(&self) -> Option<u32> {
        match self {
            NamedRow::Site(index, _) => Some(*index),
            NamedRow::Missing | NamedRow::Unknown => None,
        }
    }
}

impl Handshake<'_> {
    /// The row of a name, where one says what is shown for it.
    pub(super) async fn row_of(&self, name: &str) -> NamedRow {
        if !find::is_needed_early(&self.serving.generation, name) {
            return NamedRow::Unknown;
        }
        let asking = Asking {
            worker: self.worker,
            serving: self.serving,
            client: self.client(),
        };
        match find::early(asking, name).await {
            Ok(Some((destination, site))) => NamedRow::Site(destination.site, site),
            Ok(None) => NamedRow::Missing,
            Err(_) => NamedRow::Unknown,
        }
    }

    /// A site; the row's in place of the one that it is stamped of.
    pub(super) fn site_at(&self, index: Option<u32>) -> Option<&Site> {
        match &self.row {
            NamedRow::Site(known, site) if index == Some(*known) => Some(site),
            _ => self.serving.generation.sites.get(index? as usize),
        }
    }

    /// The certificate for a host of a site.
    pub(super) fn certificate<'t>(
        &self,
        table: &'t CertificateTable,
        hello: &ClientHello,
        site: Option<u32>,
        host: &str,
    ) -> Option<&'t Certificate> {
        let sites = self.site_at(site);
        let own = sites.and_then(|site| {
            let mut sources = site.certificates.iter();
            let own = sources.find_map(|source| table.of_source(source));
            own.or_else(|| self.said_by_row(table, hello, site))
        });
        own.or_else(|| table.of_name(host, self.tenant_of(site), &hello.schemes))
    }

    /// The certificate that a row names, where it is good for the row's host.
    fn said_by_row<'t>(
        &self,
        table: &'t CertificateTable,
        hello: &ClientHello,
        site: &Site,
    ) -> Option<&'t Certificate> {
        let column = site.rows.as_ref()?.certificate.as_ref()?;
        let said = site.row.as_ref()?.column(column);
        if said.is_empty() {
            return None;
        }
        let found = table.called(said, &site.name, &hello.schemes);
        if found.is_none() {
            self.worker.shared.rows.complain_of(&site.name, said);
        }
        found
    }

    /// Who is to accept the name that a client asks for before there is a certificate for it; none where there is one,
    /// or none is ordered on demand.
    pub(super) fn acceptor_of(
        &self,
        table: &CertificateTable,
        hello: &ClientHello,
        asked: Option<u32>,
    ) -> Option<Accepts> {
        let name = hello.name.as_deref()?;
        let acceptor = self.who_accepts(name)?;
        let known = self.certificate(table, hello, asked, name);
        let client = self.client();
        let is_there = known.is_some_and(|it| note_use(self.worker, &acceptor, name, client, it));
        (!is_there && !matches!(acceptor, Accepts::Nobody)).then_some(acceptor)
    }

    fn who_accepts(&self, name: &str) -> Option<Accepts> {
        let generation = &self.serving.generation;
        let of_map = || generation.demand_map(name).cloned().map(Accepts::Map);
        match &self.row {
            NamedRow::Site(_, site) => {
                let is_ordered = matches!(site.acceptor, Some(Acceptor::Directory(_)));
                let is_ordered = is_ordered && config::model::is_orderable(name);
                is_ordered.then(|| Accepts::Row(Arc::clone(&site.tenant_name)))
            }
            NamedRow::Missing => of_map().or(Some(Accepts::Nobody)),
            NamedRow::Unknown => of_map(),
        }
    }

    /// Waits for a certificate.
    pub(super) async fn obtain(&self, by: &Accepts, name: &str) -> Result<(), Over> {
        let obtained = obtain(self.worker, by, name, self.client()).await;
        obtained.map_err(|(reason, detail)| Over {
            last_word: match reason {
                "name_refused" => UNRECOGNIZED_NAME,
                _ => INTERNAL_ERROR,
            },
            ..Over::of(reason, detail)
        })
    }
}
