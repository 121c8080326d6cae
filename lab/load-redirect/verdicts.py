"""Asks a server whose rule is `above 3.00` what it makes of load averages, one by one.

Prints for each whether it was redirected, and how many verdicts are not those of the numbers.
"""

import http.client
import os

LOADS = ["2.99", "3.01", "3.5", "4", "9.9", "10.5", "10.50", "12"]

wrong = 0
for load in LOADS:
    server = http.client.HTTPConnection("127.0.0.1", int(os.environ["LAB_PORT"]), timeout=10)
    server.request("GET", "/verdict/hello.txt?" + load, headers={"Host": "lab"})
    redirected = server.getresponse().status == 302
    wrong += redirected != (float(load) > 3.0)
    print(f"at_{load} {int(redirected)} redirects")
    server.close()
print(f"wrong {wrong} verdicts")
