//! A runtime like a worker's.

/// Runs `test` as a worker would.
pub(crate) fn on_a_worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime starts");
    runtime.block_on(test)
}

/// Runs `test` so with a store that was started; not where that is none of this machine's.
pub(crate) fn with<S>(store: Option<S>, test: impl AsyncFnOnce(S)) {
    if let Some(store) = store {
        on_a_worker(test(store));
    }
}
