#!/bin/sh
# Prints rows for a folder that has a folder for each site, named by its host, whose owner is the tenant: CSV, for
# `source = "file:sites.csv"` or a database's own import. Folders of root or of nobody that there is are left out, and
# told.
set -eu
echo host,tenant,user
for site in "$1"/*/; do
  site=${site%/}
  host=${site##*/}
  case $host in *[!a-z0-9.-]*) continue ;; esac
  owner=$(stat -c %U -- "$site")
  case $owner in
    root | UNKNOWN) echo "$0: $site: its owner is $owner" >&2 ;;
    *) printf '%s,%s,%s\n' "$host" "$owner" "$owner" ;;
  esac
done
