//! Where experiments lie.

use std::path::{Path, PathBuf};

use load::Error;

/// The directory of experiments, below the working directory.
pub(crate) const DIRECTORY: &str = "lab";
/// The file of an experiment that has a directory of its own.
const OWN_FILE: &str = "experiment.toml";

/// The file of an experiment that is given by its name or its file.
pub(crate) fn file(name: &str) -> Result<PathBuf, Error> {
    let given = PathBuf::from(name);
    if given.is_dir() && given.join(OWN_FILE).is_file() {
        return Ok(given.join(OWN_FILE));
    }
    if given.is_file() {
        return Ok(given);
    }
    let directory = Path::new(DIRECTORY);
    let choices = [
        directory.join(format!("{name}.toml")),
        directory.join(name).join(OWN_FILE),
    ];
    if let Some(found) = choices.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    if name.contains('/') || name.ends_with(".toml") {
        let missing = match given.is_dir() {
            true => format!("the directory has no {OWN_FILE}"),
            false => "there is no such file".to_owned(),
        };
        return Err(Error::new(format!("read the experiment {name}"), missing));
    }
    let [short, long] = choices.map(|path| path.display().to_string());
    let known: Vec<String> = all()
        .iter()
        .map(|path| super::reading::name_of(path))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let help = match super::source::nearest(name, &known) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if known.is_empty() => "; run it where `lab/` lies".to_owned(),
        None => format!("; there are {}", known.join(", ")),
    };
    Err(Error::new(
        format!("find the experiment `{name}`"),
        format!("there is neither {short} nor {long}{help}"),
    ))
}

/// Files of all experiments below the working directory, by name.
pub(crate) fn all() -> Vec<PathBuf> {
    files_in(Path::new(DIRECTORY))
}

/// Files of all experiments in a directory of them, by name.
pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let file = |entry: std::fs::DirEntry| {
        let path = entry.path();
        let own = path.join(OWN_FILE);
        if own.is_file() {
            return Some(own);
        }
        let is_toml = path
            .extension()
            .is_some_and(|extension| extension == "toml");
        (is_toml && entry.file_name() != super::picture::FILE).then_some(path)
    };
    let mut found: Vec<PathBuf> = entries.filter_map(file).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_not_looked_for_as_a_name() {
        for given in ["./nowhere/own.toml", "own.toml", "nowhere/own"] {
            let said = file(given).expect_err("it is not there").to_string();
            assert_eq!(
                said,
                format!("read the experiment {given}: there is no such file")
            );
        }
        let said = file("nowhere").expect_err("it is not there").to_string();
        assert!(said.contains("lab/nowhere.toml"), "{said}");
    }
}
