//! Settings of PHP that a directory may have (`php_value`, `php_flag`), and how php-fpm is told.
//!
//! These are the settings that PHP lets a directory change (`PHP_INI_PERDIR`, `PHP_INI_ALL`), but for
//! those of a whole process, of walls, and of what a pool keeps by itself (`opcache.…`, `zend.…`,
//! `open_basedir`, `session.save_path`): php-fpm itself would take any. A process of it keeps what a
//! request has told it, so each has the value that PHP begins with where no `php.ini` says another:
//! [`forgetting`] asks for that.

use std::collections::BTreeSet;

/// Names, each with PHP's own value, by name.
const SETTINGS: &[(&str, &str)] = &[
    ("arg_separator.input", "&"),
    ("arg_separator.output", "&"),
    ("auto_append_file", ""),
    ("auto_detect_line_endings", "0"),
    ("auto_prepend_file", ""),
    ("date.default_latitude", "31.7667"),
    ("date.default_longitude", "35.2333"),
    ("date.timezone", "UTC"),
    ("default_charset", "UTF-8"),
    ("default_mimetype", "text/html"),
    ("default_socket_timeout", "60"),
    ("display_errors", "1"),
    ("display_startup_errors", "1"),
    ("docref_ext", ""),
    ("docref_root", ""),
    ("enable_post_data_reading", "1"),
    ("error_append_string", ""),
    ("error_log", ""),
    ("error_prepend_string", ""),
    ("error_reporting", "32767"),
    ("filter.default", "unsafe_raw"),
    ("filter.default_flags", ""),
    ("from", ""),
    ("gd.jpeg_ignore_warning", "1"),
    ("highlight.comment", "#FF8000"),
    ("highlight.default", "#0000BB"),
    ("highlight.html", "#000000"),
    ("highlight.keyword", "#007700"),
    ("highlight.string", "#DD0000"),
    ("html_errors", "1"),
    ("iconv.input_encoding", ""),
    ("iconv.internal_encoding", ""),
    ("iconv.output_encoding", ""),
    ("ignore_repeated_errors", "0"),
    ("ignore_repeated_source", "0"),
    ("ignore_user_abort", "0"),
    ("implicit_flush", "0"),
    ("include_path", ".:/usr/share/php"),
    ("input_encoding", ""),
    ("internal_encoding", ""),
    ("intl.default_locale", ""),
    ("intl.error_level", "0"),
    ("intl.use_exceptions", "0"),
    ("log_errors", "1"),
    ("mail.add_x_header", "0"),
    ("max_execution_time", "30"),
    ("max_file_uploads", "20"),
    ("max_input_nesting_level", "64"),
    ("max_input_time", "-1"),
    ("max_input_vars", "1000"),
    ("max_multipart_body_parts", "-1"),
    ("mbstring.detect_order", ""),
    ("mbstring.encoding_translation", "0"),
    ("mbstring.http_input", ""),
    ("mbstring.http_output", ""),
    ("mbstring.internal_encoding", ""),
    ("mbstring.language", "neutral"),
    ("mbstring.strict_detection", "0"),
    ("mbstring.substitute_character", ""),
    ("memory_limit", "128M"),
    ("output_buffering", "0"),
    ("output_encoding", ""),
    ("output_handler", ""),
    ("pcre.backtrack_limit", "1000000"),
    ("pcre.jit", "1"),
    ("pcre.recursion_limit", "100000"),
    ("post_max_size", "8M"),
    ("precision", "14"),
    ("register_argc_argv", "1"),
    ("report_memleaks", "1"),
    ("request_order", ""),
    ("sendmail_from", ""),
    ("serialize_precision", "-1"),
    ("session.auto_start", "0"),
    ("session.cache_expire", "180"),
    ("session.cache_limiter", "nocache"),
    ("session.cookie_domain", ""),
    ("session.cookie_httponly", "0"),
    ("session.cookie_lifetime", "0"),
    ("session.cookie_path", "/"),
    ("session.cookie_samesite", ""),
    ("session.cookie_secure", "0"),
    ("session.gc_maxlifetime", "1440"),
    ("session.lazy_write", "1"),
    ("session.name", "PHPSESSID"),
    ("session.referer_check", ""),
    ("session.serialize_handler", "php"),
    ("session.sid_bits_per_character", "4"),
    ("session.sid_length", "32"),
    ("session.trans_sid_hosts", ""),
    ("session.trans_sid_tags", "a=href,area=href,frame=src,form="),
    ("session.upload_progress.cleanup", "1"),
    ("session.upload_progress.enabled", "1"),
    ("session.upload_progress.freq", "1%"),
    ("session.upload_progress.min_freq", "1"),
    (
        "session.upload_progress.name",
        "PHP_SESSION_UPLOAD_PROGRESS",
    ),
    ("session.upload_progress.prefix", "upload_progress_"),
    ("session.use_cookies", "1"),
    ("session.use_only_cookies", "1"),
    ("session.use_strict_mode", "0"),
    ("session.use_trans_sid", "0"),
    ("short_open_tag", "1"),
    ("unserialize_callback_func", ""),
    ("unserialize_max_depth", "4096"),
    ("upload_max_filesize", "2M"),
    ("url_rewriter.hosts", ""),
    ("url_rewriter.tags", "form="),
    ("user_agent", ""),
    ("variables_order", "EGPCS"),
    ("zlib.output_compression", "0"),
    ("zlib.output_compression_level", "-1"),
    ("zlib.output_handler", ""),
];

/// Whether a directory may have this setting.
pub fn is_known(name: &str) -> bool {
    default_of(name).is_some()
}

/// All of them, by name.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name)
}

fn default_of(name: &str) -> Option<&'static str> {
    let at = SETTINGS.binary_search_by_key(&name, |(name, _)| name);
    SETTINGS.get(at.ok()?).map(|(_, value)| *value)
}

/// Settings as the variable `PHP_VALUE` has them: a line each, which PHP reads as the lines of its
/// `php.ini`, values as the very bytes they are.
pub fn lines<'a>(settings: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in settings {
        lines.extend_from_slice(name.as_bytes());
        lines.push(b'=');
        if value.is_empty() {
            lines.extend_from_slice(b"\"\"");
        }
        // Nothing means anything between these quotes, and they cannot stand there themselves.
        for (at, part) in value.split(|byte| *byte == b'\'').enumerate() {
            if at > 0 {
                lines.extend_from_slice(b"\"'\"");
            }
            if !part.is_empty() {
                lines.extend_from_slice(&[b"'", part, b"'"].concat());
            }
        }
        lines.push(b'\n');
    }
    lines
}

/// Variables of a request that gives the settings of these names back what they were: what `php.ini`
/// says, and else what the variable of their own name does.
pub fn forgetting(names: &BTreeSet<&str>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let known = names.iter().copied();
    let known = known.filter_map(|name| Some((name, default_of(name)?)));
    let mut lines = String::new();
    let mut variables = Vec::new();
    for (name, value) in known {
        lines += &format!("{name}=\"${{{name}}}\"\n");
        variables.push((name.into(), value.into()));
    }
    variables.push((b"PHP_VALUE".to_vec(), lines.into_bytes()));
    variables
}
