<?php
// The static page, out of PHP.
header('Content-Type: text/html; charset=utf-8');
include __DIR__ . '/page.html';
