//! Keys of `[acme.NAME]`.

use super::amounts::{DAY, HOUR, SECOND};
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};

pub(crate) const ACME: Section = Section {
    title: "[acme.NAME]",
    about: "An account with an authority that issues certificates by ACME (RFC 8555). Sites name it: `tls = { acme = \"NAME\" }`. \
        Whoever has one has agreed to the authority's terms. A name is letters, digits, `-` and `_`.",
    keys: &[
        key(
            "directory",
            Kind::Text,
            Required,
            "The URL of the authority's directory.",
            "directory = \"https://acme-v02.api.letsencrypt.org/directory\"",
        ),
        key(
            "contact",
            Kind::Other("text, or list of texts"),
            Value("[]"),
            "Where the authority may write to: mail addresses, or other URLs.",
            "contact = \"ops@example.jp\"",
        ),
        key(
            "eab",
            Kind::Other("table"),
            Absent("the account stands for itself"),
            "The customer's account that this one is bound to, where the authority wants that.",
            "eab = { id = \"kid-1\", key = \"eab.key\" }",
        ),
        key(
            "fallback",
            Kind::Other("text, or list of texts"),
            Value("[]"),
            "Other accounts, by name: the next one has its turn after every third failure in a row.",
            "fallback = \"other\"",
        ),
        key(
            "challenges",
            Kind::Other("list of `\"http-01\"`, `\"tls-alpn-01\"` and `\"dns-01\"`"),
            Value("[\"http-01\"]"),
            "How the authority is shown that a name is ours: by a reply over plain HTTP on port 80, by a certificate in a handshake on port 443, or by \
             a record in the domain name system, which `dns` puts there and which alone is good for wildcards. \
             Of several the first one that it offers is taken, and after a failure the next one.",
            "challenges = [\"tls-alpn-01\"]",
        ),
        key(
            "dns",
            Kind::Other("table"),
            Absent("no records are made"),
            "What puts records into the domain name system, for `dns-01`.",
            "dns = { program = [\"./dns.sh\"] }",
        ),
        key(
            "export",
            Kind::Other("table"),
            Absent("nothing is written for others"),
            "Where certificates and keys are written for other daemons, after each renewal, and at the start where they are missing or older.",
            "export = { directory = \"/srv/tls\" }",
        ),
        key(
            "profile",
            Kind::Text,
            Absent("the authority's default"),
            "Which of the authority's profiles is ordered.",
            "profile = \"shortlived\"",
        ),
        key(
            "ca",
            Kind::Text,
            Absent("the machine's authorities"),
            "PEM file of the authorities that the directory's own certificate may come from: for an authority of your own. \
             Everybody must be able to read it.",
            "ca = \"/etc/nagaya/our-ca.pem\"",
        ),
        key(
            "store",
            Kind::Text,
            Value("/var/lib/nagaya/acme"),
            "The directory that holds accounts, keys and certificates, each account's below its name. It is made where it is missing. \
             Several machines may share it.",
            "store = \"/srv/shared/acme\"",
        ),
        key(
            "lease",
            Kind::Duration(SECOND, HOUR),
            Value("30s"),
            "For how long another machine that shares the store must have been silent before this one orders in its place.",
            "lease = \"1m\"",
        ),
        key(
            "on_demand",
            Kind::Other("table"),
            Absent("names are ordered that sites have among their hosts"),
            "Names that a site covers by a pattern, as `*.example.jp` or `*`, or by the rows of a directory, are ordered once a handshake asks for one and a map or a row accepts it.",
            "on_demand = { map = \"customers\" }",
        ),
    ],
};

pub(crate) const ON_DEMAND: Section = Section {
    title: "on_demand = { … }",
    about: "Certificates for names that are known once somebody asks for them. The budgets are counted by this machine, and begin \
        with what lies in the store; renewals count for none of them.",
    keys: &[
        key(
            "map",
            Kind::Text,
            Absent("`directory` says it"),
            "The map (`[maps.NAME]`) that is asked first. A file is asked for the name; a program for the name and the client's address, \
             with a space between. An answer accepts the name; none, or an empty one, refuses it; \
             a program that fails says neither.",
            "map = \"customers\"",
        ),
        key(
            "directory",
            Kind::Text,
            Absent("`map` says it"),
            "The directory (`[directories.NAME]`) whose rows are accepted, for its own site: names that have a row are ordered, and no others.",
            "directory = \"customers\"",
        ),
        key(
            "tenant",
            Kind::Count(1, 10_000),
            Value("30"),
            "How many new names of one tenant's sites are ordered within three hours.",
            "tenant = 10",
        ),
        key(
            "domain",
            Kind::Count(1, 10_000),
            Value("25"),
            "How many new names below one registered domain are ordered within seven days. Let's Encrypt issues 50 in that time, \
             the hosts of sites among them.",
            "domain = 10",
        ),
        key(
            "total",
            Kind::Count(1, 10_000),
            Value("100"),
            "How many new names are ordered within three hours. Let's Encrypt takes 300 orders of an account in that time, \
             those for hosts of sites among them.",
            "total = 50",
        ),
        key(
            "names",
            Kind::Count(1, 100_000),
            Value("10000"),
            "For how many names there are certificates at once.",
            "names = 2000",
        ),
        key(
            "unused",
            Kind::Duration(DAY, 400 * DAY),
            Value("30d"),
            "For how long nobody need ask for a name so that it is renewed all the same.",
            "unused = \"14d\"",
        ),
    ],
};

pub(crate) const ACME_DNS: Section = Section {
    title: "dns = { … } of [acme.NAME]",
    about: "A program that puts a `TXT` record into the domain name system and takes it away again. It is given three words more: \
        `present` or `cleanup`, the record's name (`_acme-challenge.example.jp.`, with the dot at its end) and its value: what lego gives its `exec` programs. \
        It ends with 0 once everybody sees the record, and may meet several values of one name, which it leaves to each other. \
        Its environment is empty but for `PATH`; at most 8 run at once, and what it writes is told, up to 4 KiB, where it fails.",
    keys: &[
        key(
            "program",
            Kind::Other("list of texts: a program and its arguments"),
            Required,
            "The program. One without a slash is looked for in `/usr/local/bin`, `/usr/bin` and `/bin`; any other, and what its arguments name, \
             is relative to the directory of the configuration file, where it starts.",
            "program = [\"./dns.sh\"]",
        ),
        key(
            "user",
            Kind::Text,
            Absent("`nagaya-dns`, where the gateway is started as root"),
            "Who the program runs as. Uid 0 is refused. \
             Whoever has a password for the domain name system had better be nobody else: not the server's user, and not `nagaya-acme`.",
            "user = \"dns\"",
        ),
        key(
            "timeout",
            Kind::Duration(SECOND, HOUR),
            Value("2m"),
            "How long it may take, and others take to see the record. It is killed then, with its process group.",
            "timeout = \"10m\"",
        ),
    ],
};

pub(crate) const ACME_EXPORT: Section = Section {
    title: "export = { … } of [acme.NAME]",
    about: "Files for other daemons: of each certificate `NAME/fullchain.pem`, `NAME/privkey.pem`, and both in `NAME/combined.pem`, key first. \
        NAME is the certificate's first name, with `_` for `*`.",
    keys: &[
        key(
            "directory",
            Kind::Text,
            Required,
            "The directory. It is made where it is missing, and the one above it must be there. No link may be on the way to it, and nobody but root \
             (or whoever starts the gateway) may be able to write to it or above it.",
            "directory = \"/srv/tls\"",
        ),
        key(
            "owner",
            Kind::Text,
            Absent("whoever starts the gateway"),
            "Whose the files are, and of whose first group.",
            "owner = \"root\"",
        ),
        key(
            "mode",
            Kind::Text,
            Value("0600"),
            "Who may read them: octal digits.",
            "mode = \"0640\"",
        ),
        key(
            "run",
            Kind::Other("list of texts: a program and its arguments"),
            Absent("nothing is run"),
            "What is run as `owner`, which must be named then, a second after files have changed; once for all of them. It may take two minutes, and is tried again \
             where it fails. As root it runs if nobody else may write its file.",
            "run = [\"true\"]",
        ),
    ],
};

pub(crate) const EAB: Section = Section {
    title: "eab = { … }",
    about: "External account binding (RFC 8555, 7.3.4). One of an authority's customers has both from its pages.",
    keys: &[
        key(
            "id",
            Kind::Text,
            Required,
            "The key's identifier.",
            "id = \"kid-1\"",
        ),
        key(
            "key",
            Kind::Text,
            Required,
            "File with the key, in base64url. The supervisor alone reads it; it need not be readable to others.",
            "key = \"eab.key\"",
        ),
    ],
};
