"""A CGI program in C beside Apache's mod_cgid and nginx with fcgiwrap: time to the first byte."""

import os
import socket
import time

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
                      for name in ("mpm_event", "authz_core", "cgid", "alias", "mime"))
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


def first_byte(port, count):
    """Microseconds from request to first byte, one request after another on one connection."""
    request = b"GET /hello.cgi HTTP/1.1\r\nHost: lab\r\n\r\n"
    times = []
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            link.sendall(request)
            reply = link.recv(65536)
            times.append((time.perf_counter() - start) * 1e6)
            # Chunked or with a length, the reply ends so.
            while not reply.endswith((b"\r\n0\r\n\r\n", b"\r\n\r\nhello, world!\n")):
                more = link.recv(65536)
                assert more, f"cut: {reply}"
                reply += more
            assert reply.startswith(b"HTTP/1.1 200"), reply
    return sorted(times)


def latency(rounds=15, count=200):
    """One request after another; then sixteen at once, for the rate."""
    os.sched_setaffinity(0, {int(b.CLIENT_CORE)})
    with b.Bed() as bed:
        peers = servers(bed)
        single = {name: [] for name, _ in peers}
        crowd = {name: [] for name, _ in peers}
        for _, port in peers:
            first_byte(port, 50)
        for number in range(rounds):
            b.progress(f"spawn · round {number + 1}/{rounds}")
            for name, port in peers[number % 3:] + peers[:number % 3]:
                single[name].append(first_byte(port, count))
                crowd[name].append(b.wrk(port, "/hello.cgi", 16, 1))
    rows = []
    middle = {name: [times[count // 2] for times in rounds_of] for name, rounds_of in single.items()}
    targets = {"Apache mod_cgid": 0.8, "nginx + fcgiwrap": 1.0}
    for name, p50 in middle.items():
        ratio = b.median([mine / theirs for mine, theirs in zip(middle["nagaya"], p50)])
        target = targets.get(name)
        p99 = b.median([times[count * 99 // 100] for times in single[name]])
        failed = sum(load["failed"] for load in crowd[name])
        rows.append((name, f"{b.median(p50):,.0f}", f"{p99:,.0f}",
                     f"{b.median([load['per_second'] for load in crowd[name]]):,.0f}", failed,
                     f"{ratio:.2f}" if target else "", target or "", b.verdict(ratio <= target) if target else ""))
    note = "From the request to the reply's first byte, one request at a time on one connection; servers and programs on one core, the client on the other. Ratio: our p50 over theirs, round by round."
    columns = ["hello in C", "p50 µs", "p99 µs", "req/s, 16 at once", "failed", "ours / theirs", "target", ""]
    return b.table("From request to first byte of a CGI program", columns, rows, note)
