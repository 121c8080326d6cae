//! The rows of the table: what is asked for, and what ratio to which peer is wanted.

/// What a server has to be able to do for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Forward to the back end over kept connections.
    Proxy,
    /// Answer out of the configuration.
    Respond,
    /// Serve a file.
    Static,
    /// Have php-fpm run a page, over kept connections.
    Php,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// Peers and the least ratio of our figure to theirs that counts as met.
    pub(crate) targets: &'static [(&'static str, f64)],
}

/// All rows, in the order of the report.
pub(crate) const ROWS: [Work; 7] = [
    Work {
        name: "proxy 13 B",
        path: "/proxy/13",
        kind: Kind::Proxy,
        targets: &[("nginx", 1.10), ("haproxy", 1.10)],
    },
    Work {
        name: "proxy 100 KB",
        path: "/proxy/100k",
        kind: Kind::Proxy,
        targets: &[("nginx", 1.0), ("haproxy", 1.0)],
    },
    Work {
        name: "respond 13 B",
        path: "/respond",
        kind: Kind::Respond,
        targets: &[("nginx", 1.05)],
    },
    Work {
        name: "static 14 B",
        path: "/static/14.txt",
        kind: Kind::Static,
        targets: &[("nginx", 1.3), ("h2o", 1.05)],
    },
    Work {
        name: "static 10 KB",
        path: "/static/10k.txt",
        kind: Kind::Static,
        targets: &[("nginx", 1.3), ("h2o", 1.05)],
    },
    Work {
        name: "static 1 MB",
        path: "/static/1m.txt",
        kind: Kind::Static,
        targets: &[("nginx", 0.95)],
    },
    Work {
        name: "php-fpm 13 B",
        path: "/php/hello.php",
        kind: Kind::Php,
        targets: &[("nginx", 1.1)],
    },
];
