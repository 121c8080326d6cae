//! CGI, FastCGI and what starts programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod bounds;
mod capabilities;
mod cgi;
mod cgi_bodies;
mod cgi_ends;
mod cgi_redirects;
mod compressed;
mod costs;
mod escapes;
mod fastcgi;
mod fastcgi_nginx;
mod fastcgi_php;
mod htaccess;
mod htaccess_php;
mod maps;
mod mounts;
mod pools;
mod pools_endless;
mod pools_joined;
mod pools_lost;
mod pools_seen;
mod pools_stuck;
mod program_env;
mod rows;
mod sendmail;
mod shares;
mod spawner;
mod spawner_life;
mod tenants;
mod throttled;
