//! Replays every file of the fuzzing corpora through the property it was found with.

use crate::properties;
use testkit::replay;

#[test]
fn memcached_reply() {
    replay("memcached_reply", properties::memcached_reply);
}

#[test]
fn redis_reply() {
    replay("redis_reply", properties::redis_reply);
}

#[test]
fn mysql_reply() {
    replay("mysql_reply", properties::mysql_reply);
}
