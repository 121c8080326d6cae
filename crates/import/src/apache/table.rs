//! Apache's directives, and what becomes of those that need no thought.

/// What a directive comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApacheMeaning {
    Thought,
    Idle(&'static str),
    Lost(&'static str),
    /// Nothing is known of it.
    Unknown,
    /// It is about who may have what and cannot be had: what it covers is closed.
    Closing(&'static str),
}

use ApacheMeaning::{Closing, Idle, Lost, Thought, Unknown};

const TABLE: &[(ApacheMeaning, &str)] = &[
    (
        Thought,
        "virtualhost servername serveralias documentroot directory directorymatch location locationmatch files filesmatch \
         limit limitexcept require requireall requireany requirenone order allow deny satisfy authtype authname authuserfile \
         authgroupfile alias scriptalias redirect redirectmatch redirectpermanent redirecttemp rewriteengine rewritecond \
         rewriterule fallbackresource proxypass proxypassmatch proxypreservehost proxytimeout sethandler addhandler addtype \
         header requestheader expiresactive expiresdefault expiresbytype setenv unsetenv errordocument directoryindex options \
         allowoverride allowoverridelist limitrequestbody timeout keepalivetimeout maxkeepaliverequests customlog errorlog logformat sslengine \
         sslcertificatefile sslcertificatekeyfile sslcacertificatefile sslverifyclient suexecusergroup assignuserid \
         php_admin_value php_admin_flag php_value php_flag listen balancermember proxy proxymatch if elseif else \
         ruidgid forcetype browsermatch browsermatchnocase directoryslash acceptpathinfo removehandler removetype \
         indexignore authbasicprovider authbasicauthoritative authzsendforbiddenonfailure rewriteoptions rewritebase \
         setenvif setenvifnocase setenvifexpr adddefaultcharset accessfilename",
    ),
    (
        Idle("processes, modules and buffers are the gateway's own affair"),
        "serverroot pidfile mutex defaultruntimedir user group loadmodule startservers minspareservers maxspareservers \
         minsparethreads maxsparethreads threadsperchild threadlimit maxrequestworkers maxconnectionsperchild serverlimit \
         maxclients maxrequestsperchild asyncrequestworkerfactor hostnamelookups typesconfig mimemagicfile coredumpdirectory \
         enablemmap enablesendfile acceptfilter receivebuffersize sendbuffersize listenbacklog maxmemfree \
         gracefulshutdowntimeout scoreboardfile rmode rgroups rdefaultuidgid rminuidgid define undefine error keepalive syntax addmodule clearmodulelist",
    ),
    (
        Idle(
            "it is like that here, or needs no word: text is told as UTF-8 and compressed, and no version is told",
        ),
        "serveradmin serversignature servertokens usecanonicalname usecanonicalphysicalport traceenable fileetag \
         addcharset addencoding addlanguage languagepriority forcelanguagepriority defaultlanguage \
         indexoptions addicon addiconbytype addiconbyencoding defaulticon readmename headername adddescription \
         addoutputfilterbytype addoutputfilter setoutputfilter deflatecompressionlevel deflatefilternote deflatememlevel \
         deflatewindowsize deflatebuffersize brotlicompressionquality filterdeclare filterprovider filterchain \
         loglevel contentdigest namevirtualhost protocols protocolshonororder h2direct h2push \
         directoryindexredirect globallog \
         cgipassauth ",
    ),
    (
        Idle(
            "back ends are asked like that, or need no word: URLs of the server's own come out as paths of the site",
        ),
        "proxypassreverse proxyrequests proxyaddheaders proxyvia proxybadheader proxyiobuffersize proxypassinherit \
         proxyset proxywebsocketfallbacktoproxyhttp proxyfcgibackendtype proxyfcgisetenvif sslproxyengine",
    ),
    (
        Idle("what of TLS is spoken is decided once for all sites: `[tls]`"),
        "sslprotocol sslciphersuite sslhonorcipherorder sslcompression sslsessiontickets sslsessioncache \
         sslsessioncachetimeout sslusestapling sslstaplingcache sslrandomseed sslpassphrasedialog sslcryptodevice \
         ssloptions sslopensslconfcmd sslstrictsnivhostcheck sslverifydepth sslinsecurerenegotiation \
         sslstaplingrespondertimeout sslstaplingreturnrespondererrors",
    ),
    (
        Lost(
            "it holds for all sites here: write it into `[timeouts]` or `[caps]` of the main file",
        ),
        "requestreadtimeout limitrequestline limitrequestfields limitrequestfieldsize limitxmlrequestbody",
    ),
    (
        Lost("its files are not in what was read: give what `apache2ctl -t -D DUMP_CONFIG` prints"),
        "include includeoptional",
    ),
    (
        Lost("a pattern leads to no directory here: write a site or a mount for each"),
        "aliasmatch scriptaliasmatch virtualdocumentroot virtualscriptalias userdir",
    ),
    (
        Lost("write it as `rewrite`, a map, or `proxy_redirect` of a handler"),
        "rewritemap proxypassreversecookiedomain proxypassreversecookiepath",
    ),
    (
        Lost("variables that depend on requests are `env` with a `match`"),
        "passenv rewritelock",
    ),
    (
        Lost("bodies and fields that are put together are changed by scripts"),
        "substitute xbithack ssiendtag setinputfilter addinputfilter extfilterdefine",
    ),
    (
        Lost(
            "a page is run by php-fpm, by a pool of the gateway's or as a CGI program: write a rule",
        ),
        "action script scriptsock fcgidwrapper fcgidiotimeout fcgidconnecttimeout fcgidmaxrequestlen wsgiscriptalias \
         wsgidaemonprocess wsgiprocessgroup wsgiapplicationgroup passengerroot passengerruby",
    ),
    (
        Lost("a site has one certificate, with those that vouch for it in its file"),
        "sslcertificatechainfile sslcacertificatepath sslcarevocationfile sslcarevocationpath",
    ),
    (
        Lost("balancers and CDNs are told with `trusted_proxies` and `proxy_protocol`"),
        "remoteipheader remoteipinternalproxy remoteiptrustedproxy remoteipproxyprotocol remoteiptrustedproxylist",
    ),
    (
        Closing(
            "such a way to let in has no counterpart: write `auth`, `allow` or an `access` script",
        ),
        "sslrequiressl sslrequire authmerging authformprovider authldapurl authdigestprovider authdigestdomain \
         authdbduserpwquery session sessioncookiename qs_locrequestlimit allowmethods",
    ),
];

/// What a directive comes to, known or not; its name is in small letters.
pub(super) fn meaning(name: &str) -> ApacheMeaning {
    let mut rows = TABLE.iter();
    if let Some((meaning, _)) =
        rows.find(|(_, names)| names.split_ascii_whitespace().any(|it| it == name))
    {
        return *meaning;
    }
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if begins(&["sec", "modsecurity"]) {
        Lost("rules of ModSecurity are not run")
    } else if begins(&["cache", "lscache"]) {
        Lost("there is no cache")
    } else if begins(&[
        "auth",
        "require",
        "allow",
        "deny",
        "sslrequire",
        "sslverify",
    ]) {
        Closing("it is not known here and seems to be about who may come in")
    } else {
        Unknown
    }
}
