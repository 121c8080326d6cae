<?php
// The same with settings that SQLite's own manual would give: a log that is appended to, no flush
// to disk at each view.
require __DIR__ . '/analytics.php';
$views = count_view(['PRAGMA journal_mode = WAL', 'PRAGMA synchronous = NORMAL']);
header('Content-Type: text/html; charset=utf-8');
include __DIR__ . '/page.html';
echo "<!-- view $views -->\n";
