# %domain%, written by HestiaCP: change the template instead. PHP is the panel's own pool.
[[sites]]
#hosts %domain_idn% %alias_idn%
tenant = "%user%"
user = "%user%"
root = "%docroot%"
within = "%home%/%user%"
index = ["index.php", "index.html"]
try = ["$path", "$path/", "/index.php"]
log = { access = "/var/log/nagaya/domains/%domain%.log", error = "/var/log/nagaya/domains/%domain%.error.log" }

  [[sites.rules]]
  match = { path = ["*/.*", "*.sql", "*.bak"], not = { path = "/.well-known/*" } }
  deny = "all"

  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "%backend_lsnr%" }
