<?php
// The same page where the server's configuration has done the rest.
header('Content-Type: text/html; charset=utf-8');
include __DIR__ . '/../page.html';
