//! Replays every file of the fuzzing corpora through the property it was found with.

use crate::properties;
use testkit::{mutate, replay};

#[test]
fn request_head() {
    replay("request_head", properties::request_head);
}

#[test]
fn reply_head() {
    replay("reply_head", properties::reply_head);
}

#[test]
fn chunked_body() {
    replay("chunked_body", properties::chunked_body);
}

#[test]
fn target() {
    replay("target", properties::target);
}

#[test]
fn host() {
    replay("host", properties::host);
}

#[test]
fn ranges() {
    replay("ranges", properties::ranges);
}

#[test]
fn redirects() {
    replay("redirects", properties::redirects);
}

#[test]
fn client_hello() {
    replay("client_hello", properties::client_hello);
    mutate("client_hello", properties::client_hello);
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", properties::proxy_protocol);
    mutate("proxy_protocol", properties::proxy_protocol);
}
