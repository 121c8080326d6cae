-- Counts the request out: one less for its file.
ngx.shared.in_flight:incr(ngx.var.request_filename, -1, 0)
