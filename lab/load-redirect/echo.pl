#!/usr/bin/perl
# Answers with what it was asked.
use strict;
$| = 1;
while (<STDIN>) {
    print;
}
