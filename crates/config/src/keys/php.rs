//! Settings of PHP: what those are called that PHP itself and the usual extensions have, of all
//! versions, and which of them a misspelt name means.
//!
//! The idea: no list has all of them, so a name is only held against those that it nearly is.

use super::suggest::nearest_within;

/// The names, with spaces between.
const SETTINGS: &str = "\
    allow_url_fopen allow_url_include always_populate_raw_post_data apc.enable_cli apc.enabled \
    apc.entries_hint apc.gc_ttl apc.mmap_file_mask apc.serializer apc.shm_segments apc.shm_size \
    apc.slam_defense apc.ttl apc.use_request_time arg_separator.input arg_separator.output asp_tags \
    assert.active assert.bail assert.callback assert.exception assert.quiet_eval assert.warning \
    auto_append_file auto_detect_line_endings auto_globals_jit auto_prepend_file bcmath.scale browscap \
    cgi.discard_path cgi.fix_pathinfo cgi.force_redirect cgi.nph cgi.redirect_status_env cgi.rfc2616_headers \
    com.allow_dcom com.autoregister_typelib com.code_page com.typelib_file curl.cainfo date.default_latitude \
    date.default_longitude date.sunrise_zenith date.sunset_zenith date.timezone dba.default_handler \
    default_charset default_mimetype default_socket_timeout disable_classes disable_functions display_errors \
    display_startup_errors doc_root docref_ext docref_root enable_dl enable_post_data_reading \
    error_append_string error_log error_log_mode error_prepend_string error_reporting exif.decode_jis_intel \
    exif.decode_jis_motorola exif.decode_unicode_intel exif.decode_unicode_motorola exif.encode_jis \
    exif.encode_unicode expose_php extension extension_dir fastcgi.error_header fastcgi.logging ffi.enable \
    ffi.preload fiber.stack_size file_uploads filter.default filter.default_flags from \
    gd.jpeg_ignore_warning hard_timeout highlight.comment highlight.default highlight.html highlight.keyword \
    highlight.string html_errors ibase.allow_persistent iconv.input_encoding iconv.internal_encoding \
    iconv.output_encoding ignore_repeated_errors ignore_repeated_source ignore_user_abort imagick.locale_fix \
    imagick.progress_monitor imagick.skip_version_check imap.enable_insecure_rsh implicit_flush include_path \
    input_encoding internal_encoding intl.default_locale intl.error_level intl.use_exceptions ldap.max_links \
    log_errors magic_quotes_gpc magic_quotes_runtime mail.add_x_header mail.force_extra_parameters mail.log \
    mail.mixed_lf_and_crlf max_execution_time max_file_uploads max_input_nesting_level max_input_time \
    max_input_vars max_memory_limit max_multipart_body_parts mbstring.detect_order \
    mbstring.encoding_translation mbstring.func_overload mbstring.http_input mbstring.http_output \
    mbstring.http_output_conv_mimetypes mbstring.internal_encoding mbstring.language \
    mbstring.regex_retry_limit mbstring.regex_stack_limit mbstring.strict_detection \
    mbstring.substitute_character mcrypt.algorithms_dir mcrypt.modes_dir memcached.compression_threshold \
    memcached.compression_type memcached.serializer memcached.sess_lock_expire memcached.sess_lock_retries \
    memcached.sess_lock_wait_max memcached.sess_lock_wait_min memcached.sess_locking memcached.sess_prefix \
    memory_hard_limit_percent memory_limit mysql.allow_local_infile mysql.allow_persistent \
    mysql.connect_timeout mysql.default_host mysql.default_password mysql.default_port mysql.default_socket \
    mysql.default_user mysql.max_links mysql.max_persistent mysql.trace_mode mysqli.allow_local_infile \
    mysqli.allow_persistent mysqli.cache_size mysqli.default_host mysqli.default_port mysqli.default_pw \
    mysqli.default_socket mysqli.default_user mysqli.local_infile_directory mysqli.max_links \
    mysqli.max_persistent mysqli.reconnect mysqli.rollback_on_cached_plink mysqlnd.collect_memory_statistics \
    mysqlnd.collect_statistics mysqlnd.debug mysqlnd.log_mask mysqlnd.mempool_default_size \
    mysqlnd.net_cmd_buffer_size mysqlnd.net_read_buffer_size mysqlnd.net_read_timeout \
    mysqlnd.sha256_server_public_key mysqlnd.trace_alloc oci8.connection_class oci8.default_prefetch \
    oci8.events oci8.max_persistent oci8.old_oci_close_semantics oci8.persistent_timeout oci8.ping_interval \
    oci8.prefetch_lob_size oci8.privileged_connect oci8.statement_cache_size odbc.allow_persistent \
    odbc.check_persistent odbc.default_cursortype odbc.default_db odbc.default_pw odbc.default_user \
    odbc.defaultbinmode odbc.defaultlrl odbc.max_links odbc.max_persistent opcache.blacklist_filename \
    opcache.cache_id opcache.consistency_checks opcache.dups_fix opcache.enable opcache.enable_cli \
    opcache.enable_file_override opcache.error_log opcache.fast_shutdown opcache.file_cache \
    opcache.file_cache_consistency_checks opcache.file_cache_only opcache.file_update_protection \
    opcache.force_restart_timeout opcache.huge_code_pages opcache.inherited_hack \
    opcache.interned_strings_buffer opcache.jit opcache.jit_bisect_limit opcache.jit_blacklist_root_trace \
    opcache.jit_blacklist_side_trace opcache.jit_buffer_size opcache.jit_debug opcache.jit_hot_func \
    opcache.jit_hot_loop opcache.jit_hot_return opcache.jit_hot_side_exit opcache.jit_max_exit_counters \
    opcache.jit_max_loop_unrolls opcache.jit_max_polymorphic_calls opcache.jit_max_recursive_calls \
    opcache.jit_max_recursive_returns opcache.jit_max_root_traces opcache.jit_max_side_traces \
    opcache.jit_max_trace_length opcache.jit_prof_threshold opcache.load_comments opcache.lockfile_path \
    opcache.log_verbosity_level opcache.max_accelerated_files opcache.max_file_size \
    opcache.max_wasted_percentage opcache.memory_consumption opcache.mmap_base opcache.opt_debug_level \
    opcache.optimization_level opcache.preferred_memory_model opcache.preload opcache.preload_user \
    opcache.protect_memory opcache.record_warnings opcache.restrict_api opcache.revalidate_freq \
    opcache.revalidate_path opcache.save_comments opcache.use_cwd opcache.validate_permission \
    opcache.validate_root opcache.validate_timestamps open_basedir openssl.cafile openssl.capath \
    output_buffering output_encoding output_handler pcre.backtrack_limit pcre.jit pcre.recursion_limit \
    pdo_mysql.default_socket pdo_odbc.connection_pooling pdo_odbc.db2_instance_name pgsql.allow_persistent \
    pgsql.auto_reset_persistent pgsql.ignore_notice pgsql.log_notice pgsql.max_links pgsql.max_persistent \
    phar.cache_list phar.readonly phar.require_hash post_max_size precision realpath_cache_size \
    realpath_cache_ttl redis.arrays.hosts redis.arrays.names redis.clusters.cache_slots redis.clusters.seeds \
    redis.pconnect.connection_limit redis.pconnect.echo_check_liveness redis.pconnect.pooling_enabled \
    redis.session.compression redis.session.lock_expire redis.session.lock_retries \
    redis.session.lock_wait_time redis.session.locking_enabled register_argc_argv register_globals \
    report_memleaks report_zend_debug request_order safe_mode sendmail_from sendmail_path \
    serialize_precision session.auto_start session.bug_compat_42 session.bug_compat_warn \
    session.cache_expire session.cache_limiter session.cookie_domain session.cookie_httponly \
    session.cookie_lifetime session.cookie_path session.cookie_samesite session.cookie_secure \
    session.entropy_file session.entropy_length session.gc_divisor session.gc_maxlifetime \
    session.gc_probability session.hash_bits_per_character session.hash_function session.lazy_write \
    session.name session.referer_check session.save_handler session.save_path session.serialize_handler \
    session.sid_bits_per_character session.sid_length session.trans_sid_hosts session.trans_sid_tags \
    session.upload_progress.cleanup session.upload_progress.enabled session.upload_progress.freq \
    session.upload_progress.min_freq session.upload_progress.name session.upload_progress.prefix \
    session.use_cookies session.use_only_cookies session.use_strict_mode session.use_trans_sid \
    short_open_tag SMTP smtp_port soap.wsdl_cache soap.wsdl_cache_dir soap.wsdl_cache_enabled \
    soap.wsdl_cache_limit soap.wsdl_cache_ttl sql.safe_mode sqlite3.defensive sqlite3.extension_dir \
    sys_temp_dir syslog.facility syslog.filter syslog.ident tidy.clean_output tidy.default_config \
    track_errors unserialize_callback_func unserialize_max_depth upload_max_filesize upload_tmp_dir \
    uploadprogress.file.filename_template uploadprogress.get_contents url_rewriter.hosts url_rewriter.tags \
    user_agent user_dir user_ini.cache_ttl user_ini.filename variables_order xdebug.cli_color \
    xdebug.client_host xdebug.client_port xdebug.discover_client_host xdebug.idekey xdebug.log \
    xdebug.log_level xdebug.max_nesting_level xdebug.mode xdebug.output_dir xdebug.profiler_output_name \
    xdebug.start_with_request xdebug.trigger_value xdebug.var_display_max_children \
    xdebug.var_display_max_data xdebug.var_display_max_depth xmlrpc_error_number xmlrpc_errors \
    xsl.security_prefs y2k_compliance zend.assertions zend.detect_unicode zend.enable_gc \
    zend.exception_ignore_args zend.exception_string_param_max_len zend.max_allowed_stack_size \
    zend.multibyte zend.reserved_stack_size zend.script_encoding zend.signal_check zend_extension \
    zlib.output_compression zlib.output_compression_level zlib.output_handler";

/// What php-fpm calls what keys of a pool say.
const OF_FPM: [(&str, &str); 3] = [
    ("pm.max_children", "processes"),
    ("pm.max_requests", "requests"),
    ("request_terminate_timeout", "time"),
];

/// What to do about a name that is nearly a setting's; nothing where it is one, or none that is known.
pub(crate) fn meant_setting(name: &str) -> Option<String> {
    let known = || SETTINGS.split_ascii_whitespace();
    if known().any(|setting| setting == name) {
        return None;
    }
    if let Some((_, key)) = OF_FPM.iter().find(|(word, _)| *word == name) {
        return Some(format!("it is php-fpm's, and `{key}` says it here"));
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace(['.', '-'], "_");
    let spelt = known().find(|setting| plain(setting) == plain(name));
    let slips = (name.len() / 5).clamp(1, 2);
    let meant = spelt.or_else(|| nearest_within(name, slips, known()));
    meant.map(|meant| format!("did you mean `{meant}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_told_from_one_that_is_nearly_one_and_from_what_nobody_knows() {
        for (name, meant) in [
            ("memory_limit", None),
            ("memory_limt", Some("did you mean `memory_limit`?")),
            ("memroy_limit", Some("did you mean `memory_limit`?")),
            ("Memory-Limit", Some("did you mean `memory_limit`?")),
            ("opcache_enable", Some("did you mean `opcache.enable`?")),
            (
                "session.cookie_secur",
                Some("did you mean `session.cookie_secure`?"),
            ),
            ("mysql.max_links", None),
            ("newrelic.appname", None),
            ("xdebug.collect_return", None),
            ("x", None),
            (
                "pm.max_children",
                Some("it is php-fpm's, and `processes` says it here"),
            ),
        ] {
            assert_eq!(meant_setting(name).as_deref(), meant, "{name}");
        }
    }

    #[test]
    fn no_setting_is_told_to_be_another() {
        let mut before = "";
        for name in SETTINGS.split_ascii_whitespace() {
            assert_ne!(name, before, "it is there once");
            assert_eq!(meant_setting(name), None, "{name}");
            before = name;
        }
    }
}
