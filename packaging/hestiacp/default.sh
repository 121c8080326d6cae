#!/bin/sh
# HestiaCP runs this once it has written a domain's file, with the user, the domain, its address and
# where homes are: the names that it wrote with spaces between become a list.
set -eu
file=$4/$1/conf/web/$2/nagaya.conf
listed=$(mktemp "$file.XXXXXX")
awk '$1 == "#hosts" {
  for (i = 2; i <= NF; i++) list = list (i > 2 ? ", " : "") "\"" $i "\""
  $0 = "hosts = [" list "]"
} { print }' "$file" >"$listed"
chmod --reference="$file" "$listed"
chown --reference="$file" "$listed"
mv "$listed" "$file"
