//! The words for the model's choices, for reading and for printing.

use htaccess::SectionContext;

use crate::include::Broken;
use crate::model::{
    AcmeChallenge, Balance, Cache, ClientAuth, Degrade, EarlyHints, EncodedSlash, Isolate, LimitOn,
    LimitScope, LogFormat, LogLevel, MetricsFormat, Mode, OnError, OnLoss, Protocol, ProxyVersion,
    QueryChange, RowTrust, SaltTime, ScriptsVm, ServerClass, Share, ShedScope, Slashes, Symlinks,
    TlsVersion, UnderscoreFields, UnknownLines,
};

/// A choice that is written as a word.
pub(crate) trait Named: Copy + PartialEq + Sized + 'static {
    /// The word of every value.
    const NAMES: &'static [(&'static str, Self)];

    /// The value called `word`.
    fn named(word: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, value)| *value)
    }

    /// The first value, for where a default cannot be.
    fn first() -> Self {
        Self::NAMES[0].1
    }

    /// The word of this value.
    fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, value)| *value == self)
            .map_or("", |(name, _)| name)
    }
}

impl Named for Broken {
    const NAMES: &'static [(&'static str, Broken)] =
        &[("refuse", Broken::Refuse), ("keep", Broken::Keep)];
}

impl Named for ClientAuth {
    const NAMES: &'static [(&'static str, ClientAuth)] =
        &[("require", ClientAuth::Require), ("ask", ClientAuth::Ask)];
}

impl Named for QueryChange {
    const NAMES: &'static [(&'static str, QueryChange)] = &[
        ("append", QueryChange::Append),
        ("drop", QueryChange::Drop),
        ("replace", QueryChange::Replace),
    ];
}

impl Named for RowTrust {
    const NAMES: &'static [(&'static str, RowTrust)] = &[
        ("signed", RowTrust::Signed),
        ("unsigned", RowTrust::Unsigned),
    ];
}

impl Named for SaltTime {
    const NAMES: &'static [(&'static str, SaltTime)] = &[
        ("day", SaltTime::Day),
        ("week", SaltTime::Week),
        ("month", SaltTime::Month),
    ];
}

impl Named for TlsVersion {
    const NAMES: &'static [(&'static str, TlsVersion)] =
        &[("1.2", TlsVersion::V12), ("1.3", TlsVersion::V13)];
}

impl Named for AcmeChallenge {
    const NAMES: &'static [(&'static str, AcmeChallenge)] = &[
        ("http-01", AcmeChallenge::Http01),
        ("tls-alpn-01", AcmeChallenge::TlsAlpn01),
        ("dns-01", AcmeChallenge::Dns01),
    ];
}

impl Named for LogFormat {
    const NAMES: &'static [(&'static str, LogFormat)] = &[
        ("combined", LogFormat::Combined),
        ("vhost_combined", LogFormat::VhostCombined),
        ("json", LogFormat::Json),
        ("ltsv", LogFormat::Ltsv),
    ];
}

impl Named for LogLevel {
    const NAMES: &'static [(&'static str, LogLevel)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

impl Named for Protocol {
    const NAMES: &'static [(&'static str, Protocol)] =
        &[("http", Protocol::Http), ("fastcgi", Protocol::FastCgi)];
}

impl Named for ProxyVersion {
    const NAMES: &'static [(&'static str, ProxyVersion)] = &[
        ("off", ProxyVersion::Off),
        ("v1", ProxyVersion::V1),
        ("v2", ProxyVersion::V2),
    ];
}

impl Named for Balance {
    const NAMES: &'static [(&'static str, Balance)] = &[
        ("round_robin", Balance::RoundRobin),
        ("least_requests", Balance::LeastRequests),
    ];
}

impl Named for LimitOn {
    const NAMES: &'static [(&'static str, LimitOn)] = &[
        ("request", LimitOn::Request),
        ("handshake", LimitOn::Handshake),
    ];
}

impl Named for LimitScope {
    const NAMES: &'static [(&'static str, LimitScope)] = &[
        ("machine", LimitScope::Machine),
        ("fleet", LimitScope::Fleet),
    ];
}

impl Named for OnLoss {
    const NAMES: &'static [(&'static str, OnLoss)] = &[
        ("share", OnLoss::Share),
        ("open", OnLoss::Open),
        ("closed", OnLoss::Closed),
    ];
}

impl Named for Mode {
    const NAMES: &'static [(&'static str, Mode)] =
        &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];
}

impl Named for ScriptsVm {
    const NAMES: &'static [(&'static str, ScriptsVm)] =
        &[("own", ScriptsVm::Own), ("shared", ScriptsVm::Shared)];
}

impl Named for Symlinks {
    const NAMES: &'static [(&'static str, Symlinks)] = &[
        ("deny", Symlinks::Deny),
        ("owner", Symlinks::Owner),
        ("allow", Symlinks::Allow),
    ];
}

impl Named for SectionContext {
    const NAMES: &'static [(&'static str, SectionContext)] = &[
        ("directory", SectionContext::Directory),
        ("server", SectionContext::Server),
    ];
}

impl Named for UnknownLines {
    const NAMES: &'static [(&'static str, UnknownLines)] =
        &[("log", UnknownLines::Log), ("error", UnknownLines::Error)];
}

impl Named for Slashes {
    const NAMES: &'static [(&'static str, Slashes)] =
        &[("merge", Slashes::Merge), ("keep", Slashes::Keep)];
}

impl Named for EncodedSlash {
    const NAMES: &'static [(&'static str, EncodedSlash)] = &[
        ("refuse", EncodedSlash::Refuse),
        ("keep", EncodedSlash::Keep),
    ];
}

impl Named for UnderscoreFields {
    const NAMES: &'static [(&'static str, UnderscoreFields)] = &[
        ("drop", UnderscoreFields::Drop),
        ("refuse", UnderscoreFields::Refuse),
        ("keep", UnderscoreFields::Keep),
    ];
}

impl Named for MetricsFormat {
    const NAMES: &'static [(&'static str, MetricsFormat)] = &[
        ("prometheus", MetricsFormat::Prometheus),
        ("json", MetricsFormat::Json),
    ];
}

impl Named for EarlyHints {
    const NAMES: &'static [(&'static str, EarlyHints)] = &[
        ("browsers", EarlyHints::Browsers),
        ("all", EarlyHints::All),
        ("none", EarlyHints::None),
    ];
}

impl Named for ServerClass {
    const NAMES: &'static [(&'static str, ServerClass)] = &[
        ("nginx", ServerClass::Nginx),
        ("apache", ServerClass::Apache),
    ];
}

impl Named for Cache {
    const NAMES: &'static [(&'static str, Cache)] = &[
        ("mtime", Cache::Mtime),
        ("always", Cache::Always),
        ("never", Cache::Never),
    ];
}

impl Named for OnError {
    const NAMES: &'static [(&'static str, OnError)] =
        &[("deny", OnError::Deny), ("allow", OnError::Allow)];
}

impl Named for Isolate {
    const NAMES: &'static [(&'static str, Isolate)] =
        &[("home", Isolate::Home), ("none", Isolate::None)];
}

impl Named for Share {
    const NAMES: &'static [(&'static str, Share)] = &[("user", Share::User), ("site", Share::Site)];
}

impl Named for ShedScope {
    const NAMES: &'static [(&'static str, ShedScope)] = &[
        ("over_share", ShedScope::OverShare),
        ("all", ShedScope::All),
    ];
}

impl Named for Degrade {
    const NAMES: &'static [(&'static str, Degrade)] =
        &[("optional_scripts", Degrade::OptionalScripts)];
}
