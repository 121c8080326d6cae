//! `.htaccess` files: what they mean, line by line, and what comes of them for a request.

mod access;
mod beside_apache;
mod corpus;
mod expression;
mod firewall;
mod hostile;
mod merging;
mod overrides;
mod patterns;
mod php;
mod projects;
mod properties;
mod reply;
mod rewriting;
mod sections;
mod site;
mod tree;
