#!/usr/bin/env python3
"""Whether an application answers as itself, out of a pool that did not run and out of one that does.

    pages.py NAME     its host is NAME.lab
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "pools"))

import pools  # noqa: E402
from pools import p  # noqa: E402

# What is asked for, and what only that application says.
PAGES = {
    "wordpress": [("/", ["Thick walls", "Hello world!", "wp-content"]), ("/wp-login.php", ["user_login", "wp-submit"])],
    "mediawiki": [("/index.php/Main_Page", ["MediaWiki has been installed", "Thick walls"])],
    "dokuwiki": [("/doku.php?id=start", ["dokuwiki__content", "DokuWiki"])],
    "phpmyadmin": [("/index.php", ["pma_username", "phpMyAdmin"])],
    "roundcube": [("/", ["rcmloginuser", "Roundcube"])],
    "gunicorn": [("/", ["hello of "]), ("/deep/path", ["at /deep/path"])],
}
WARM = 20


def wrong(host, path, words):
    answer = pools.ask(host, path)
    text = answer.text.decode("utf-8", "replace")
    missing = [word for word in words if word not in text]
    if answer.status != 200 or missing:
        print(f"{host}{path}: status {answer.status}, without {missing}: {text[:2000]}", file=sys.stderr)
    return answer, answer.status != 200 or bool(missing)


def styles(host, page):
    """Pages have style sheets, which the gateway serves, or PHP."""
    found = re.findall(rb'''href=["']([^"']+\.css[^"']*)''', page)
    local = [url.decode().replace("&amp;", "&") for url in found]
    paths = [re.sub(rf"^(https?:)?//{host}(:\d+)?", "", url) for url in local]
    return [path if path.startswith("/") else f"/{path}" for path in paths if not re.match(r"(https?:)?//", path)]


def main(name):
    host = f"{name}.lab"
    pools.all_cold({host})
    wrongs, answers = 0, []
    for path, words in PAGES[name]:
        answer, is_wrong = wrong(host, path, words)
        answers.append(answer)
        wrongs += is_wrong
    for path in styles(host, answers[0].text)[:5]:
        wrongs += wrong(host, path, [])[1]
    path = PAGES[name][0][0]
    seconds = [pools.ask(host, path).seconds for _ in range(WARM)]
    standing = [pool for pool in pools.pools() if pool["tenant"] == name][0]
    p.tell(wrong_pages=wrongs, from_zero_us=answers[0].seconds * 1e6, warm_p50_us=pools.quantile(seconds, 0.5) * 1e6,
           memory_bytes=standing.get("memory_bytes", 0))


main(sys.argv[1])
