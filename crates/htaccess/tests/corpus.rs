//! Replays every file of the fuzzing corpora, and what chance makes of their lines.

use crate::properties;
use proptest::prelude::*;
use testkit::replay;

#[test]
fn htaccess() {
    replay("htaccess", properties::htaccess);
}

#[test]
fn htaccess_expression() {
    replay("htaccess_expression", properties::htaccess_expression);
}

const PIECES: [&str; 48] = [
    "\n",
    "\n",
    "\n",
    " ",
    " ",
    "\"",
    "\\",
    "<If \"",
    "\">",
    "</If>",
    "<Files ",
    "</Files>",
    ">",
    "<IfModule mod_rewrite.c>\n",
    "</IfModule>\n",
    "<RequireAll>\n",
    "</RequireAll>\n",
    "RewriteEngine On\n",
    "RewriteBase /a\n",
    "RewriteRule ",
    "RewriteCond ",
    "%{REQUEST_URI}",
    "%{HTTP:X}",
    "%{QUERY_STRING}",
    "$1",
    "%1",
    "^(.*)$",
    "(?!a)",
    "[L,R=301]",
    "[F]",
    "[E=a:$1]",
    "[N]",
    "[QSA,NE]",
    " -f",
    " -d",
    "-",
    "/x?y=$1",
    "http://o.jp/$1",
    "Require ",
    "all denied",
    "valid-user",
    "Deny from all",
    "SetEnvIf ",
    "Header set A ",
    "expr=",
    "Redirect ",
    "== 'a'",
    "=~ /a/",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_pieces_make_has_an_answer(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..60),
    ) {
        properties::htaccess(pieces.concat().as_bytes());
    }

    #[test]
    fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        properties::htaccess(&bytes);
        properties::htaccess_expression(&bytes);
    }
}
