# %domain%, written by HestiaCP: its user is suspended.
[[sites]]
#hosts %domain_idn% %alias_idn%
root = "%docroot%"
