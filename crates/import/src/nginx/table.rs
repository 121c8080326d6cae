//! nginx's directives, and what becomes of those that need no thought.

/// What a directive comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Keys are made of it where a level has it in force.
    Thought,
    /// Nothing comes of it, and nothing lacks.
    Idle(&'static str),
    /// It cannot be had.
    Lost(&'static str),
    /// It is about who may have what, or answers in place of files, and cannot be had: what it covers
    /// is closed.
    Closing(&'static str),
}

const GATEWAY: Meaning = Meaning::Idle(
    "processes, buffers, file handling and name look-ups are the gateway's own affair",
);
const TLS: Meaning = Meaning::Idle(
    "what of TLS is spoken, and how sessions are resumed, is decided once for all sites: `[tls]`",
);
const TOP: Meaning = Meaning::Lost(
    "it holds for all sites here: write it into `[timeouts]` or `[caps]` of the main file",
);
const VALUES: Meaning = Meaning::Lost(
    "values that depend on requests are no variables here: write `env` with a `match`, a map or a script",
);
const BODIES: Meaning = Meaning::Lost("bodies of replies are changed by a `body_filter` script");
const CACHE: Meaning = Meaning::Lost("there is no cache");
const LUA: Meaning = Meaning::Lost("programs of nginx's are not run: write a script of Ruby");
const LUA_ACCESS: Meaning = Meaning::Closing(
    "a program decides there who may come in or what is answered: write an `access` or `content` script",
);
const PROTOCOL: Meaning =
    Meaning::Closing("HTTP and FastCGI are spoken with back ends, and nothing else");
const SETTINGS: Meaning =
    Meaning::Lost("a back end is asked differently here: see `proxy` and `fastcgi` of `handler`");

const TABLE: &[(Meaning, &str)] = &[
    (
        Meaning::Thought,
        "listen server_name server location root alias index try_files autoindex return rewrite if allow deny \
         satisfy auth_basic auth_basic_user_file limit_req limit_conn limit_req_status limit_conn_status limit_req_zone \
         limit_conn_zone limit_except add_header expires error_page client_max_body_size proxy_read_timeout \
         fastcgi_read_timeout send_timeout keepalive_timeout keepalive_requests access_log error_log log_format gzip \
         gzip_types gzip_min_length gzip_comp_level gzip_static proxy_pass proxy_set_header proxy_buffering \
         proxy_request_buffering proxy_redirect proxy_hide_header fastcgi_hide_header fastcgi_pass fastcgi_param \
         fastcgi_request_buffering fastcgi_buffering ssl ssl_certificate ssl_certificate_key ssl_client_certificate \
         ssl_verify_client underscores_in_headers merge_slashes default_type types upstream internal set_real_ip_from \
         real_ip_header valid_referers stub_status disable_symlinks http",
    ),
    (
        GATEWAY,
        "worker_processes worker_cpu_affinity worker_rlimit_nofile worker_rlimit_core worker_priority \
         worker_connections worker_shutdown_timeout worker_aio_requests multi_accept use pid daemon master_process \
         pcre_jit thread_pool load_module events sendfile sendfile_max_chunk tcp_nopush tcp_nodelay aio aio_write \
         directio directio_alignment output_buffers postpone_output types_hash_max_size types_hash_bucket_size \
         server_names_hash_bucket_size server_names_hash_max_size variables_hash_max_size variables_hash_bucket_size \
         map_hash_max_size map_hash_bucket_size proxy_headers_hash_max_size proxy_headers_hash_bucket_size \
         open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors open_log_file_cache \
         reset_timedout_connection accept_mutex accept_mutex_delay lingering_close lingering_time lingering_timeout \
         connection_pool_size request_pool_size client_body_buffer_size client_header_buffer_size client_body_temp_path \
         client_body_in_file_only client_body_in_single_buffer proxy_temp_path fastcgi_temp_path uwsgi_temp_path \
         scgi_temp_path proxy_buffers proxy_buffer_size proxy_busy_buffers_size proxy_max_temp_file_size \
         proxy_temp_file_write_size fastcgi_buffers fastcgi_buffer_size fastcgi_busy_buffers_size \
         fastcgi_max_temp_file_size fastcgi_temp_file_write_size resolver resolver_timeout user lock_file debug_points \
         working_directory read_ahead subrequest_output_buffer_size ignore_invalid_headers env timer_resolution",
    ),
    (
        Meaning::Idle(
            "replies, redirects, ranges and compression are like that here, or need no word",
        ),
        "server_tokens server_name_in_redirect port_in_redirect absolute_redirect log_not_found log_subrequest etag \
         if_modified_since max_ranges chunked_transfer_encoding recursive_error_pages gzip_vary gzip_proxied \
         gzip_disable gzip_http_version gzip_buffers gunzip charset charset_types override_charset source_charset \
         keepalive_disable autoindex_exact_size autoindex_localtime autoindex_format msie_padding msie_refresh \
         break rewrite_log uninitialized_variable_warn real_ip_recursive auth_delay flv mp4 \
         limit_req_log_level limit_conn_log_level limit_req_dry_run limit_conn_dry_run keepalive_time",
    ),
    (
        Meaning::Idle(
            "FastCGI and back ends are asked like that, or need no word: the path is told apart by the file",
        ),
        "fastcgi_split_path_info fastcgi_index fastcgi_keep_conn fastcgi_ignore_client_abort fastcgi_pass_header \
         fastcgi_pass_request_headers fastcgi_pass_request_body fastcgi_socket_keepalive fastcgi_next_upstream \
         fastcgi_next_upstream_tries fastcgi_next_upstream_timeout fastcgi_catch_stderr fastcgi_send_timeout \
         proxy_http_version proxy_pass_request_headers proxy_pass_request_body proxy_pass_header proxy_next_upstream \
         proxy_next_upstream_tries proxy_next_upstream_timeout proxy_socket_keepalive proxy_ssl_server_name \
         proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_send_timeout proxy_ignore_client_abort \
         proxy_send_lowat proxy_cookie_flags zone",
    ),
    (
        TLS,
        "ssl_protocols ssl_ciphers ssl_prefer_server_ciphers ssl_session_cache ssl_session_timeout \
         ssl_session_tickets ssl_session_ticket_key ssl_buffer_size ssl_ecdh_curve ssl_dhparam ssl_conf_command \
         ssl_early_data ssl_stapling ssl_stapling_verify ssl_stapling_responder ssl_stapling_file \
         ssl_trusted_certificate ssl_handshake_timeout ssl_verify_depth http2 http3 http3_hq quic_retry quic_gso \
         http2_max_concurrent_streams http2_push_preload http2_recv_buffer_size http2_max_requests http2_chunk_size",
    ),
    (
        TOP,
        "client_header_timeout client_body_timeout large_client_header_buffers proxy_connect_timeout \
         fastcgi_connect_timeout",
    ),
    (
        VALUES,
        "geo geoip_country geoip_city geoip2 map split_clients set set_by_lua set_by_lua_block userid \
        userid_name userid_domain userid_path userid_expires referer_hash_max_size",
    ),
    (
        BODIES,
        "sub_filter sub_filter_once sub_filter_types sub_filter_last_modified ssi ssi_types add_before_body \
        add_after_body addition_types image_filter xslt_stylesheet pagespeed substitutions_filter subs_filter",
    ),
    (
        Meaning::Lost("how fast one client may read is not limited here: see `limits`"),
        "limit_rate limit_rate_after",
    ),
    (
        Meaning::Lost("error pages of back ends pass as they are"),
        "proxy_intercept_errors fastcgi_intercept_errors",
    ),
    (
        SETTINGS,
        "proxy_bind proxy_method proxy_set_body proxy_ssl_verify proxy_ssl_verify_depth proxy_ssl_name \
         proxy_ssl_trusted_certificate proxy_ssl_certificate proxy_ssl_certificate_key proxy_cookie_domain \
         proxy_cookie_path proxy_ignore_headers fastcgi_ignore_headers fastcgi_bind proxy_force_ranges proxy_store \
         proxy_store_access fastcgi_store fastcgi_store_access fastcgi_limit_rate proxy_limit_rate mirror \
         mirror_request_body ssl_crl ssl_password_file http2_push add_trailer more_set_headers more_clear_headers \
         more_set_input_headers more_clear_input_headers stub_status_format dav_methods dav_access dav_ext_methods \
         create_full_put_path min_delete_depth random_index client_body_in_file_only_path",
    ),
    (
        Meaning::Lost("only HTTP is served"),
        "mail stream google_perftools_profiles",
    ),
    (
        Meaning::Closing(
            "requests let in by another server or a token have no counterpart: write an `access` script",
        ),
        "auth_request auth_request_set auth_jwt auth_jwt_key_file auth_jwt_require secure_link secure_link_md5 \
         secure_link_secret ssl_ocsp auth_pam auth_pam_service_name auth_ldap auth_digest",
    ),
    (
        PROTOCOL,
        "uwsgi_pass scgi_pass grpc_pass memcached_pass redis_pass redis2_pass passenger_enabled passenger_root \
         empty_gif echo js_content perl drizzle_pass postgres_pass",
    ),
    (
        Meaning::Lost("rules of ModSecurity are not run"),
        "modsecurity modsecurity_rules modsecurity_rules_file \
        modsecurity_rules_remote modsecurity_transaction_id",
    ),
];

/// What a directive comes to, known or not.
pub(super) fn meaning(name: &str) -> Meaning {
    let mut rows = TABLE.iter();
    if let Some((meaning, _)) =
        rows.find(|(_, names)| names.split_ascii_whitespace().any(|it| it == name))
    {
        return *meaning;
    }
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if name.contains("_by_lua") {
        return match begins(&["access_", "rewrite_", "content_"]) {
            true => LUA_ACCESS,
            false => LUA,
        };
    }
    if name.contains("_cache") || name.ends_with("_no_cache") {
        CACHE
    } else if begins(&["lua_", "js_", "perl_", "init_"]) {
        LUA
    } else if begins(&[
        "uwsgi_",
        "scgi_",
        "grpc_",
        "memcached_",
        "proxy_ssl_",
        "otel_",
        "opentelemetry_",
    ]) {
        SETTINGS
    } else if begins(&[
        "auth",
        "access",
        "allow",
        "deny",
        "secure",
        "jwt",
        "limit_except",
    ]) {
        Meaning::Closing("it is not known here and seems to be about who may come in")
    } else {
        Meaning::Lost("it is not known here: if it matters, write it by hand")
    }
}
