<?php
// A page of PHP, run by a php-fpm that was there before the request.
header('Content-Type: text/plain; charset=utf-8');
printf("Hello from PHP %s, %s.\n", PHP_VERSION, $_SERVER['REMOTE_ADDR']);
printf("It was running already: process %d.\n", getmypid());
printf(
    "You asked with %s for %s, with \"%s\" behind it and \"%s\" as the query.\n",
    $_SERVER['REQUEST_METHOD'],
    $_SERVER['SCRIPT_NAME'],
    $_SERVER['PATH_INFO'] ?? '',
    $_SERVER['QUERY_STRING']
);
