//! Keys of TLS: on listeners, for the process, and on sites.

use super::amounts::DAY;
use super::key::Fallback::{Absent, Value};
use super::key::{Key, Kind, Section, key};

pub(super) const TLS_OF_LISTENER: Key = key(
    "tls",
    Kind::Other("`true` or a table"),
    Absent("plain HTTP"),
    "Whether clients of this address speak TLS. The certificate is that of the site whose host a client names.",
    "tls = { default = \"www.example.jp\" }",
);

pub(super) const TLS_OF_SITE: Key = key(
    "tls",
    Kind::Other("table"),
    Absent("its certificate is found by name among those of `[tls]`"),
    "The site's certificate, and what it asks of clients that come with TLS.",
    "tls = { redirect = true }",
);

pub(super) const TLS_OF_PROCESS: Key = key(
    "tls",
    Kind::Other("table"),
    Absent("its defaults"),
    "TLS: where certificates are, and what is spoken.",
    "tls = { certificates = [\"certs/*.pem\"] }",
);

pub(crate) const LISTEN_TLS: Section = Section {
    title: "tls = { … } of [[listen]]",
    about: "How a listener speaks TLS; `true` is an empty table.",
    keys: &[key(
        "default",
        Kind::Text,
        Absent("such clients are refused"),
        "The host whose certificate is shown to clients that name none, where none is for the address they came to, and \
         to clients that name a host nobody has.",
        "default = \"www.example.jp\"",
    )],
};

pub(crate) const TLS: Section = Section {
    title: "[tls]",
    about: "TLS of all listeners that speak it.",
    keys: &[
        key(
            "certificates",
            Kind::Other("list of file globs"),
            Value("[]"),
            "Certificates for whatever sites they name: PEM files that hold a chain and its private key or have the key beside \
             them as `NAME.key`, and directories that hold `fullchain.pem` and `privkey.pem`, as certbot makes them. Relative to the file that names them; `*` stays within one directory. \
             A site's own `tls` comes first.",
            "certificates = [\"certs/*.pem\", \"/etc/letsencrypt/live/*\"]",
        ),
        key(
            "versions",
            Kind::Other("list of `\"1.2\"` and `\"1.3\"`"),
            Value("[\"1.2\", \"1.3\"]"),
            "Versions of TLS that are spoken.",
            "versions = [\"1.3\"]",
        ),
        key(
            "tickets",
            Kind::Duration(60_000, DAY),
            Value("8h"),
            "How long session tickets are sealed with one key. What it sealed is taken twice as long after that. \
             The keys are made by chance where private keys are kept, and gone when that process is: then clients make full handshakes.",
            "tickets = \"1h\"",
        ),
        key(
            "ticket_secret",
            Kind::Other("file"),
            Absent("keys are made by chance"),
            "A file with a secret of 32 bytes at least, such as `openssl rand -hex 32` prints, the same on all machines of a fleet. Keys of \
             tickets are derived from it and the time then, in steps of `tickets`: a client is resumed by any of the machines, and \
             after a restart. Their clocks may be apart by one such step. Only the supervisor reads it, and the process that keeps \
             private keys has it; another one counts ten seconds after a reload. Who gets hold of it can open all tickets it was ever used for, \
             and make some that stand for a client's certificate: make another one now and then.",
            "ticket_secret = \"/etc/nagaya/tickets.secret\"",
        ),
        key(
            "script_files",
            Kind::Other("directory, or list of directories"),
            Value("[]"),
            "Directories below which scripts of the phase `ssl_handshake` may name the files of a certificate and its key. They are \
             opened by the process that reads all certificates, and no link leads out of the directory.",
            "script_files = \"/etc/ssl/customers\"",
        ),
    ],
};

pub(crate) const SITE_TLS: Section = Section {
    title: "tls = { … } of [[sites]]",
    about: "A site's certificate, and what it asks of clients that come with TLS.",
    keys: &[
        key(
            "certificate",
            Kind::Text,
            Absent("found by name among those of `[tls]`"),
            "PEM file of the site's certificate and those that vouch for it, its own first. On a site of a directory a column of the row, as `$row.certificate`: \
             the name of one of those that `[tls] certificates` leads to, without its directory and ending (certbot's: the directory's name). It is shown where it is good for the host.",
            "certificate = \"certs/example.pem\"",
        ),
        key(
            "key",
            Kind::Text,
            Absent("it stands in the file of `certificate`"),
            "PEM file of the certificate's private key. It never gets into a process that reads from a network.",
            "key = \"certs/example.key\"",
        ),
        key(
            "local",
            Kind::Flag,
            Value("false"),
            "Whether the certificate is made here, by an authority of our own that only those trust who are told to: for development. Says nothing beside `certificate`. \
             Its certificate is written to `nagaya-development.crt` beside the configuration. The default site's is good for `localhost`, `127.0.0.1` and `::1`.",
            "local = true",
        ),
        key(
            "acme",
            Kind::Text,
            Absent("nothing is ordered"),
            "The account (`[acme.NAME]`) that the site's certificate is ordered and renewed with. Beside `certificate` that file is served \
             with, until its certificate is due.",
            "acme = \"le\"",
        ),
        key(
            "script",
            Kind::Flag,
            Value("false"),
            "Whether scripts of the phase `ssl_handshake` run for its handshakes, and may name the certificate that is shown. Where they \
             name none, the site's own is, as without them.",
            "script = true",
        ),
        key(
            "client_ca",
            Kind::Text,
            Absent("clients are asked for no certificate"),
            "PEM file of the authorities whose certificates clients have to show.",
            "client_ca = \"certs/other.pem\"",
        ),
        key(
            "client_auth",
            Kind::Choice(&["require", "ask"]),
            Value("require"),
            "What becomes of a client that shows no certificate: it is refused in the handshake, or let in without one (`ask`). \
             One whose certificate is not by `client_ca` is always refused.",
            "client_auth = \"ask\"",
        ),
        key(
            "redirect",
            Kind::Flag,
            Value("false"),
            "Whether requests that come without TLS are answered 308 with the same address under `https`.",
            "redirect = true",
        ),
        key(
            "hsts",
            Kind::Duration(0, HSTS_MS_MAX),
            Absent("nothing is said"),
            "How long browsers are told to come with TLS alone (`Strict-Transport-Security`), on replies over TLS; `0s` takes it back.",
            "hsts = \"365d\"",
        ),
    ],
};

/// Ten years.
const HSTS_MS_MAX: u64 = 3_650 * DAY;
