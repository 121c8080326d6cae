//! What holds for any bytes whatever: shared by the corpus test and the fuzz target.

use config::{Sources, dump, load};

/// A configuration is refused with a reason or loaded; what was loaded is printed so that it
/// loads again to the same.
///
/// # Panics
/// Where that does not hold.
pub(crate) fn config(bytes: &[u8]) {
    let sources = |text: &str| {
        Sources::from_text("/etc/nagaya/nagaya.toml", text)
            .with_file(
                "/etc/nagaya/htpasswd",
                b"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n",
            )
            .with_file("/etc/nagaya/404.html", b"gone")
    };
    let given = sources(&String::from_utf8_lossy(bytes));
    assert_eq!(Sources::from_bytes(&given.to_bytes()).as_ref(), Ok(&given));
    match load(&given) {
        Err(problems) => {
            assert!(problems.count() > 0);
            assert!(!problems.to_string().is_empty());
        }
        Ok(model) => {
            let printed = dump(&model);
            let again = load(&sources(&printed));
            assert_eq!(again.as_ref(), Ok(&model), "{printed}");
        }
    }
}
