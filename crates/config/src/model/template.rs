//! Text with variables.

use super::map::MapLookup;

/// Text with variables, as used in redirects, replies and field values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Pieces in order.
    pub parts: Vec<TemplatePart>,
}

/// One piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text as it is.
    Text(String),
    /// `$host`: canonical host, without port.
    Host,
    /// `$path`: canonical path, wire form.
    Path,
    /// `$query`: query without `?`, empty if none.
    Query,
    /// `$uri`: `$path`, and `?$query` if there is one.
    Uri,
    /// `$scheme`: `http` or `https`.
    Scheme,
    /// `$client`: the resolved client's address.
    Client,
    /// `$request_id`.
    RequestId,
    /// `$method`.
    Method,
    /// `${NAME:KEY|DEFAULT}`: a map's answer.
    Map(Box<MapLookup>),
}

impl Template {
    /// What it asks of maps.
    pub fn lookups(&self) -> impl Iterator<Item = &MapLookup> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Map(lookup) => Some(&**lookup),
            _ => None,
        })
    }
}
