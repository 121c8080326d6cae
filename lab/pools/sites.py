#!/usr/bin/env python3
"""Prints sites with a pool each, to be added to a configuration.

    sites.py ROOT USER SPEC...

A SPEC is NAME:COUNT[:POOLS[:TERMS]]: so many tenants, called NAME0 and so on, with so many pools each; TERMS
are the tenant's further keys. Their hosts are NAME0.lab, or NAME0-1.lab for the second pool of one that has several.
USER may be empty: then pools run as the gateway does.
"""

import sys

TENANT = """
[tenants.{tenant}]
{terms}
"""

SITE = """
[[sites]]
hosts = ["{host}"]
tenant = "{tenant}"
root = "{root}"
{user}
pool = {{ php = "lab", processes = 24, time = "12s", share = "site" }}
limits = [{{ concurrent = 50, queue = 500, wait = "60s" }}]
  [[sites.rules]]
  match = {{ file = "*.php" }}
  handler = {{ php = true }}
"""


def main(root, user, *specs):
    for spec in specs:
        parts = spec.split(":", 3)
        name, count, pools, terms = parts + ["1", ""][len(parts) - 2:]
        for tenant in (f"{name}{number}" for number in range(int(count))):
            print(TENANT.format(tenant=tenant, terms=terms))
            for pool in range(int(pools)):
                host = f"{tenant}-{pool}.lab" if int(pools) > 1 else f"{tenant}.lab"
                named = f'user = "{user}"' if user else ""
                print(SITE.format(host=host, tenant=tenant, root=root, user=named))


main(*sys.argv[1:])
