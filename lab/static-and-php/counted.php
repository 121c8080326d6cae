<?php
// The page with its analytics, included as their manuals say: at the top of every page.
require __DIR__ . '/analytics.php';
$views = count_view([]);
header('Content-Type: text/html; charset=utf-8');
include __DIR__ . '/page.html';
echo "<!-- view $views -->\n";
