<?php
// Notes how long it held a process: from the moment php has the request's parameters to the end of
// the page, when its whole reply is written. php-fpm's own log would count the idle time of a kept
// connection too.
register_shutdown_function(function () {
    $held = microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'];
    file_put_contents(getenv('LAB_HELD'), sprintf("%.1f\n", $held * 1000), FILE_APPEND | LOCK_EX);
});
usleep(50_000);
file_get_contents('php://input');
echo str_repeat('x', isset($_GET['big']) ? 2_000_000 : 13);
