//! Parts that many sites have alike, kept once: ten thousand sites on the defaults share them.
//!
//! Sites of one kind follow each other in a configuration, so comparing with the value seen last
//! finds nearly all there is to find.

use std::sync::Arc;

use crate::model::{
    Compress, Files, Limit, PhaseScripts, Script, Settings, Site, SiteHtaccess, SitePool, SiteTls,
    TryEntry,
};

/// The values seen last.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    index: Last<Vec<String>>,
    resolve: Last<Vec<TryEntry>>,
    files: Last<Files>,
    compress: Last<Compress>,
    settings: Last<Settings>,
    site_limits: Last<[Limit]>,
    rule_limits: Last<[Limit]>,
    no_scripts: Arc<PhaseScripts>,
    site_scripts: Last<PhaseScripts>,
    rule_scripts: Last<PhaseScripts>,
    tls: Last<SiteTls>,
    pool: Last<SitePool>,
    htaccess: Last<SiteHtaccess>,
}

#[derive(Debug)]
struct Last<T: ?Sized>(Option<Arc<T>>);

impl Alike {
    /// Lets a site share what the one before has too.
    pub(crate) fn share(&mut self, site: &mut Site) {
        self.index.share(&mut site.index);
        self.resolve.share(&mut site.resolve);
        self.files.share(&mut site.files);
        self.compress.share(&mut site.compress);
        self.settings.share(&mut site.settings);
        self.tls.share(&mut site.tls);
        self.pool.share(&mut site.pool);
        if let Some(htaccess) = &mut site.htaccess {
            self.htaccess.share(htaccess);
        }
        share_limits(&mut self.site_limits, &mut site.limits);
        share_scripts(&self.no_scripts, &mut self.site_scripts, &mut site.scripts);
        for rule in &mut site.rules {
            self.settings.share(&mut rule.settings);
            share_limits(&mut self.rule_limits, &mut rule.limits);
            share_scripts(&self.no_scripts, &mut self.rule_scripts, &mut rule.scripts);
        }
    }
}

/// Passes over levels without limits: they hold nothing to be shared, and stand between those with.
fn share_limits(last: &mut Last<[Limit]>, limits: &mut Arc<[Limit]>) {
    if !limits.is_empty() {
        last.share(limits);
    }
}

/// Passes over levels with inline code: equal code in two places has two names in log lines.
fn share_scripts(
    none: &Arc<PhaseScripts>,
    last: &mut Last<PhaseScripts>,
    scripts: &mut Arc<PhaseScripts>,
) {
    if scripts.is_empty() {
        *scripts = Arc::clone(none);
    } else if scripts.iter().all(|script| Script::path(script).is_some()) {
        last.share(scripts);
    }
}

impl<T: ?Sized> Default for Last<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq + ?Sized> Last<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        match &self.0 {
            Some(last) if last == value => *value = Arc::clone(last),
            _ => self.0 = Some(Arc::clone(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, load};

    #[test]
    fn sites_on_the_defaults_share_them() {
        let text = "[[listen]]\naddress = '127.0.0.1:1'\n[[sites]]\nhosts = ['a.jp']\nroot = '/a'\n[[sites]]\nhosts = ['b.jp']\nroot = '/b'\n";
        let model = load(&Sources::from_text("test.toml", text)).expect("valid");
        assert!(Arc::ptr_eq(&model.sites[0].files, &model.sites[1].files));
        assert!(Arc::ptr_eq(
            &model.sites[0].settings,
            &model.sites[1].settings
        ));
    }
}
