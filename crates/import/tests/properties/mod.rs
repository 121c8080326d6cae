//! What holds for any bytes, for the property tests and the fuzz targets.

use config::{Sources, load};
use import::{ImportOptions, Imported, apache, nginx};

/// Any bytes are refused or made into sites that are a configuration.
pub(crate) fn import_nginx(bytes: &[u8]) {
    if let Ok(imported) = nginx(bytes, &ImportOptions::default()) {
        passes(&imported);
    }
}

/// Any bytes are refused or made into sites that are a configuration.
pub(crate) fn import_apache(bytes: &[u8]) {
    if let Ok(imported) = apache(bytes, &ImportOptions::default()) {
        passes(&imported);
    }
}

/// Whether the files are a configuration, all files that they name being there.
pub(crate) fn passes(imported: &Imported) {
    let is_site = |text: &str| text.contains("[[sites]]");
    if !imported.files.iter().any(|file| is_site(&file.text)) {
        return;
    }
    let main = match imported
        .files
        .iter()
        .any(|file| file.text.contains("[[listen]]"))
    {
        true => "",
        false => "listen = [{ address = \"127.0.0.1:80\", tls = true }]\n",
    };
    let mut sources = Sources::from_text("main.toml", main)
        .with_file("/etc/ssl/certs/ca-certificates.crt", b"-")
        .with_php("8.2", "/usr/sbin/php-fpm8.2");
    for file in &imported.files {
        for word in file.text.split('"').filter(|word| word.starts_with('/')) {
            sources = sources.with_file(word, b"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
        }
        sources = sources.with_file("/etc/groups", b"staff: alice\n");
        sources = sources.with_include(&format!("{}.toml", file.name), &file.text);
    }
    if let Err(problems) = load(&sources) {
        let texts: Vec<&str> = imported.files.iter().map(|file| &*file.text).collect();
        panic!("{problems}\n{}", texts.join("\n---\n"));
    }
}
