//! Replays every file of the fuzzing corpora through the property it was found with, and what a mutator makes of them.

use crate::properties;
use testkit::{mutate, replay};

#[test]
fn keeper_messages() {
    replay("keeper_messages", properties::keeper_messages);
    mutate("keeper_messages", properties::keeper_messages);
}

#[test]
fn acme_messages() {
    replay("acme_messages", properties::acme_messages);
    mutate("acme_messages", properties::acme_messages);
}

#[test]
fn arbitrary_ring() {
    replay("arbitrary_ring", properties::arbitrary_ring);
    mutate("arbitrary_ring", properties::arbitrary_ring);
}

#[test]
fn arbitrary_cursor() {
    replay("arbitrary_cursor", properties::arbitrary_cursor);
    mutate("arbitrary_cursor", properties::arbitrary_cursor);
}

#[test]
fn archive_messages() {
    replay("archive_messages", properties::archive_messages);
    mutate("archive_messages", properties::archive_messages);
}

#[test]
fn console_messages() {
    replay("console_messages", properties::console_messages);
    mutate("console_messages", properties::console_messages);
}

#[test]
fn directory_messages() {
    replay("directory_messages", properties::directory_messages);
    mutate("directory_messages", properties::directory_messages);
}
