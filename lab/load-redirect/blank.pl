#!/usr/bin/perl
# Answers at once: what is left is the cost of asking.
use strict;
$| = 1;
while (<STDIN>) {
    print "0.00\n";
}
