//! Replays every file of the fuzzing corpora through the property it was found with.

use crate::properties;
use testkit::replay;

#[test]
fn fastcgi_records() {
    replay("fastcgi_records", properties::fastcgi_records);
}

#[test]
fn cgi_head() {
    replay("cgi_head", properties::cgi_head);
}
