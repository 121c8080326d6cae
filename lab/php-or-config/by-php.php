<?php
// Mobiles sent elsewhere and fields set by the page itself, as pages of shared hosts do it.
require __DIR__ . '/mobile.php';
if (is_mobile($_SERVER['HTTP_USER_AGENT'] ?? '')) {
    header('Location: /phone/', true, 302);
    exit;
}
header('Content-Type: text/html; charset=utf-8');
header('Cache-Control: private, max-age=60');
header('Vary: User-Agent');
header('X-Content-Type-Options: nosniff');
header('X-Frame-Options: DENY');
include __DIR__ . '/../page.html';
