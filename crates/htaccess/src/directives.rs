//! The directives that may stand in a `.htaccess` file, with the class of each.

use std::sync::LazyLock;

use crate::overrides::OverrideClass;

/// What a directive is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Authentication, and requirements of 2.4.
    Auth,
    /// `Order`, `Allow`, `Deny`, `Satisfy`.
    Hosts,
    Options,
    /// `SSLRequireSSL`.
    TlsOnly,
    Env,
    Rewrite,
    Redirect,
    Fields,
    /// What a file is, by its name.
    Types,
    /// What a directory shows.
    Directory,
    Expiry,
    ErrorDocument,
    Php,
    /// `php_admin_flag`, of which sections have `engine`.
    PhpAdmin,
    /// The largest body.
    Body,
    /// Nothing comes of it here, and nothing lacks.
    Inert,
    /// Refused with this reason, whatever it says.
    Refused(&'static str),
    /// About access and not to be had: refuses what it covers.
    Unsupported(&'static str),
}

/// A directive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownDirective {
    pub(crate) name: &'static str,
    pub(crate) class: OverrideClass,
    pub(crate) meaning: Meaning,
    /// Unknown, not allowed or half understood it refuses what it covers.
    pub(crate) is_access: bool,
}

/// A class, a meaning, whether it is about access, and the names that have these.
type Row = (OverrideClass, Meaning, bool, &'static str);

const DIGEST: Meaning =
    Meaning::Unsupported("Digest authentication is not had: use AuthType Basic");
const CLIENT: Meaning =
    Meaning::Unsupported("client certificates are asked for in the site's configuration");
const PROGRAM: Meaning =
    Meaning::Refused("programs are named in the site's configuration: a rule with a handler");
const MEANINGS: [Row; 27] = [
    (
        OverrideClass::AuthConfig,
        Meaning::Auth,
        true,
        "AuthType AuthName AuthUserFile AuthGroupFile AuthBasicProvider \
         AuthBasicAuthoritative AuthMerging AuthzSendForbiddenOnFailure Require",
    ),
    (
        OverrideClass::Limit,
        Meaning::Hosts,
        true,
        "Order Allow Deny",
    ),
    (OverrideClass::AuthConfig, Meaning::Hosts, true, "Satisfy"),
    (OverrideClass::Options, Meaning::Options, true, "Options"),
    (
        OverrideClass::AuthConfig,
        Meaning::TlsOnly,
        true,
        "SSLRequireSSL",
    ),
    (
        OverrideClass::AuthConfig,
        CLIENT,
        true,
        "SSLRequire SSLVerifyClient SSLVerifyDepth",
    ),
    (
        OverrideClass::AuthConfig,
        DIGEST,
        true,
        "AuthDigestAlgorithm AuthDigestDomain AuthDigestNonceLifetime AuthDigestProvider \
         AuthDigestQop AuthBasicUseDigestAlgorithm AuthBasicFake",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Env,
        false,
        "SetEnv UnsetEnv PassEnv SetEnvIf SetEnvIfNoCase SetEnvIfExpr BrowserMatch \
         BrowserMatchNoCase",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Rewrite,
        false,
        "RewriteEngine RewriteOptions RewriteBase RewriteCond RewriteRule",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Redirect,
        false,
        "Redirect RedirectMatch RedirectPermanent RedirectTemp",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Fields,
        false,
        "Header RequestHeader",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Types,
        true,
        "SetHandler AddHandler RemoveHandler ForceType AddType RemoveType",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Types,
        false,
        "AddDefaultCharset AddCharset RemoveCharset AddEncoding RemoveEncoding AddLanguage \
         RemoveLanguage DefaultLanguage AcceptPathInfo",
    ),
    (
        OverrideClass::Indexes,
        Meaning::Directory,
        false,
        "DirectoryIndex DirectorySlash FallbackResource IndexIgnore",
    ),
    (
        OverrideClass::Indexes,
        Meaning::Expiry,
        false,
        "ExpiresActive ExpiresByType ExpiresDefault",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::ErrorDocument,
        false,
        "ErrorDocument",
    ),
    (
        OverrideClass::Options,
        Meaning::Php,
        false,
        "php_value php_flag",
    ),
    (OverrideClass::Any, Meaning::Body, false, "LimitRequestBody"),
    (
        OverrideClass::Indexes,
        Meaning::Inert,
        false,
        "AddAlt AddAltByEncoding AddAltByType AddDescription AddIcon AddIconByEncoding \
         AddIconByType DefaultIcon DirectoryCheckHandler DirectoryIndexRedirect HeaderName \
         IndexHeadInsert IndexIgnoreReset IndexOptions IndexOrderDefault IndexStyleSheet \
         ReadmeName",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Inert,
        false,
        "CookieName CookieTracking DefaultType EnableMMAP EnableSendfile FileETag \
         LanguagePriority ForceLanguagePriority ModMimeUsePathInfo MultiviewsMatch \
         QualifyRedirectURL RedirectRelative RemoveInputFilter RemoveOutputFilter AddOutputFilter \
         AddOutputFilterByType SetOutputFilter",
    ),
    (
        OverrideClass::Options,
        Meaning::Inert,
        false,
        "CheckCaseOnly CheckSpelling ContentDigest FilterChain FilterDeclare FilterProtocol \
         FilterProvider SSLOptions",
    ),
    (
        OverrideClass::AuthConfig,
        Meaning::Inert,
        false,
        "CGIPassAuth SSLCipherSuite SSLRenegBufferSize SSLUserName",
    ),
    (
        OverrideClass::Any,
        Meaning::Inert,
        false,
        "LimitXMLRequestBody ModPagespeed ModPagespeedDisableFilters ModPagespeedDisallow \
         ModPagespeedEnableFilters SecFilterEngine SecFilterScanPOST ServerSignature",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Refused("scripts within pages are not run"),
        false,
        "XBitHack SSIEndTag SSIErrorMsg SSITimeFormat SSIUndefinedEcho",
    ),
    (
        OverrideClass::FileInfo,
        PROGRAM,
        true,
        "Action ScriptInterpreterSource",
    ),
    (
        OverrideClass::FileInfo,
        Meaning::Refused("what clients send is not filtered"),
        false,
        "SetInputFilter AddInputFilter",
    ),
    (
        OverrideClass::Options,
        Meaning::PhpAdmin,
        true,
        "php_admin_value php_admin_flag",
    ),
];

/// All of them, by their names in lower case.
static KNOWN: LazyLock<Vec<(String, KnownDirective)>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for (class, meaning, is_access, names) in MEANINGS {
        let known = names.split(' ').map(|name| {
            let known = KnownDirective {
                name,
                class,
                meaning,
                is_access,
            };
            (name.to_ascii_lowercase(), known)
        });
        all.extend(known);
    }
    all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    all
});

/// The directive of a name, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<KnownDirective> {
    let lower = name.to_ascii_lowercase();
    let at = KNOWN.binary_search_by(|(have, _)| have.as_bytes().cmp(&lower));
    KNOWN.get(at.ok()?).map(|(_, known)| *known)
}

/// Beginnings of names that are about access, whatever modules they are of.
const ACCESS_BEGINNINGS: [&str; 10] = [
    "auth",
    "require",
    "allow",
    "deny",
    "order",
    "satisfy",
    "sslrequire",
    "sslverify",
    "anonymous",
    "session",
];
/// How many letters a name may be off one about access to be taken for it.
const LETTERS_OFF: usize = 2;

/// Whether an unknown name begins as those about access do.
pub(crate) fn begins_like_access(name: &str) -> bool {
    ACCESS_BEGINNINGS.iter().any(|begin| {
        let begun = name.as_bytes().get(..begin.len());
        begun.is_some_and(|begun| begun.eq_ignore_ascii_case(begin.as_bytes()))
    })
}

/// The directive that a name, in lower case, was perhaps meant to be.
pub(crate) fn nearest(name: &str) -> Option<KnownDirective> {
    let ends = |name: &str| (name.bytes().next(), name.bytes().last());
    let near = KNOWN.iter().filter_map(|(lower, known)| {
        // Of a short name so many letters are too much of it.
        let most = LETTERS_OFF.min(lower.len() / 4);
        let (first, last) = ends(lower);
        let is_like = first == ends(name).0 || last == ends(name).1;
        if !is_like || lower.len().abs_diff(name.len()) > most {
            return None;
        }
        let off = strsim::osa_distance(lower, name);
        (off <= most).then_some((off, known))
    });
    let (_, known) = near.min_by_key(|(off, _)| *off)?;
    Some(*known)
}
