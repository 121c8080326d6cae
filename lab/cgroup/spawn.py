"""A CGI program in C beside Apache's mod_cgid and nginx with fcgiwrap: time to the first byte."""

import os

import bed as b


def servers(bed):
    """Starts all of them for the same program; name and port of each."""
    nginx, apache, fcgiwrap = b.needs("nginx", "apache2", "fcgiwrap")
    bed.compile_hello("site/hello.cgi")
    user = b.program_user()
    _, ours = bed.nagaya(f"""[[sites]]
hosts = ["*"]
root = "{bed.home}/site"
user = "{user}"
  [[sites.rules]]
  match = {{ file = "*.cgi" }}
  handler = {{ cgi = true }}
""")
    return [("nagaya", ours), ("Apache mod_cgid", start_apache(bed, apache, user)),
            ("nginx + fcgiwrap", start_nginx(bed, nginx, fcgiwrap, user))]


def start_apache(bed, apache, user):
    port = b.free_port()
    home = bed.directory("apache")
    modules = "/usr/lib/apache2/modules"
    loads = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so"
                      for name in ("mpm_event", "authz_core", "unixd", "cgid", "alias", "mime"))
    become = f"User {user}\nGroup nogroup\n" if os.getuid() == 0 else ""
    config = bed.file("apache/httpd.conf", f"""{loads}
ServerRoot {home}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {home}/pid
ErrorLog {home}/error.log
ScriptSock {home}/cgisock
{become}MaxKeepAliveRequests 0
KeepAliveTimeout 60
TypesConfig /dev/null
DocumentRoot {bed.home}/site
<Directory {bed.home}/site>
  Options +ExecCGI
  Require all granted
  AddHandler cgi-script .cgi
</Directory>
""")
    bed.start(apache, "-D", "FOREGROUND", "-f", config, ready=port)
    return port


def start_nginx(bed, nginx, fcgiwrap, user):
    port = b.free_port()
    socket = bed.home / "fcgiwrap.sock"
    become = ["setpriv", f"--reuid={user}", "--clear-groups", "--regid=nogroup"] if os.getuid() == 0 else []
    bed.home.chmod(0o777)
    bed.start(*become, fcgiwrap, "-c", "4", "-s", f"unix:{socket}", ready=socket)
    if os.getuid() == 0:
        os.chmod(socket, 0o777)
    home = bed.directory("nginx")
    config = bed.file("nginx/nginx.conf", f"""daemon off;
worker_processes 1;
pid {home}/pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;
  uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  server {{
    listen 127.0.0.1:{port};
    root {bed.home}/site;
    location ~ \\.cgi$ {{
      include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
      fastcgi_pass unix:{socket};
    }}
  }}
}}
""")
    bed.start(nginx, "-p", home, "-c", config, "-e", "stderr", ready=port)
    return port


def latency(rounds=9, seconds=2):
    """One request after another; then sixteen at once, for the rate."""
    with b.Bed() as bed:
        peers = servers(bed)
        single = {name: [] for name, _ in peers}
        crowd = {name: [] for name, _ in peers}
        for _, port in peers:
            b.wrk(port, "/hello.cgi", 1, 1)
        for number in range(rounds):
            b.progress(f"spawn · round {number + 1}/{rounds}")
            for name, port in peers[number % 3:] + peers[:number % 3]:
                load = b.wrk(port, "/hello.cgi", 1, seconds)
                assert load["failed"] == 0, f"{name}: {load}"
                single[name].append(load)
                crowd[name].append(b.wrk(port, "/hello.cgi", 16, seconds))
    rows = []
    ours = [load["p50_us"] for load in single["nagaya"]]
    targets = {"Apache mod_cgid": 0.8, "nginx + fcgiwrap": 1.0}
    for name, loads in single.items():
        p50 = [load["p50_us"] for load in loads]
        ratio = b.median([mine / theirs for mine, theirs in zip(ours, p50)])
        target = targets.get(name)
        rows.append((name, f"{b.median(p50):,.0f}", f"{b.median([load['p99_us'] for load in loads]):,.0f}",
                     f"{b.median([load['per_second'] for load in crowd[name]]):,.0f}",
                     f"{ratio:.2f}" if target else "", target or "", b.verdict(ratio <= target) if target else ""))
    note = "One connection, one request at a time, servers and programs on one core, the client on the other. Ratio: our p50 over theirs, round by round."
    columns = ["hello in C", "p50 µs", "p99 µs", "req/s, 16 at once", "ours / theirs", "target", ""]
    return b.table("From request to reply of a CGI program", columns, rows, note)
