#!/bin/sh
# A CGI program: started for one request, told about it in variables, gone when it has answered.
cat <<TEXT
Content-Type: text/plain; charset=utf-8

Hello from a program, $REMOTE_ADDR.
It was started for this request alone: process $$, user $(id -un).
You asked with $REQUEST_METHOD for $SCRIPT_NAME, with "$PATH_INFO" behind it and "$QUERY_STRING" as the query.
TEXT
