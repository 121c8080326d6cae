//! Records, parameters and replies of FastCGI and CGI.

mod corpus;
mod environment;
mod properties;
mod record;
mod reply;
