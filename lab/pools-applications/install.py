#!/usr/bin/env python3
"""Makes applications ready that want a database or a configuration of their own, as root.

    install.py mediawiki HOME       a wiki in HOME/wiki, by its own installer, as www-data
    install.py roundcube HOME       settings and a database in HOME/mail
    install.py wordpress PORT       a site, by its own page
"""

import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def own_place(home, name):
    place = Path(home, name)
    place.mkdir(exist_ok=True)
    shutil.chown(place, "www-data", "www-data")
    return place


def roundcube(home):
    place = own_place(home, "mail")
    for name in ("defaults.inc.php", "mimetypes.php"):
        shutil.copy(f"/etc/roundcube/{name}", place)


def mediawiki(home):
    place = own_place(home, "wiki")
    command = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", "php",
               "/usr/share/mediawiki/maintenance/install.php", "--dbtype", "sqlite", "--dbpath", place, "--dbname", "wiki",
               "--confpath", place, "--scriptpath", "", "--server", "http://mediawiki.lab", "--pass", "very-thick-walls",
               "Thick walls", "Admin"]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        sys.exit(said.stdout + said.stderr)


def wordpress(port):
    form = {"weblog_title": "Thick walls", "user_name": "admin", "admin_password": "very-thick-walls",
            "admin_password2": "very-thick-walls", "pw_weak": "on", "admin_email": "admin@wordpress.lab", "blog_public": "0"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/wp-admin/install.php?step=2",
                                   urllib.parse.urlencode(form).encode(), {"Host": "wordpress.lab"})
    with urllib.request.urlopen(asked, timeout=120) as reply:
        text = reply.read().decode()
    if "Success!" not in text and "Already Installed" not in text:
        sys.exit(text)


{"mediawiki": mediawiki, "roundcube": roundcube, "wordpress": wordpress}[sys.argv[1]](sys.argv[2])
