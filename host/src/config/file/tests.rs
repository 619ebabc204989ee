use super::*;
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

fn home_with(text: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.yaml"), text).unwrap();
    home
}

fn complaint(home: &Path) -> String {
    ConfigFile::read(home).expect_err("a complaint").to_string()
}

#[test]
fn a_file_that_is_not_there_says_nothing_and_neither_does_a_home_that_is_not_there() {
    let home = tempfile::tempdir().unwrap();
    let file = ConfigFile::read(home.path()).unwrap();
    assert_eq!((file.found, &file.config), (false, &Config::default()));
    assert_eq!(file.path, home.path().join("config.yaml"));
    assert_eq!(ConfigFile::read(&home.path().join("none")).unwrap().config, Config::default());
}

#[test]
fn a_file_and_a_link_to_one_are_read() {
    let home = home_with("model: {name: big}\n");
    let file = ConfigFile::read(home.path()).unwrap();
    assert_eq!((file.found, file.config.model.name.as_deref()), (true, Some("big")));
    assert_eq!(file.line("model.name"), Some(1));
    assert_eq!(file.line("model.provider"), None);
    let other = tempfile::tempdir().unwrap();
    symlink(&file.path, other.path().join("config.yaml")).unwrap();
    assert_eq!(Config::read(other.path()).unwrap(), file.config);
}

#[test]
fn a_complaint_names_the_file_the_line_and_the_key_and_how_many_more_there_are() {
    let home = home_with("model:\n  name: 5\n");
    let path = home.path().display().to_string();
    let wanted =
        format!("{path}/config.yaml:2: model.name: expected text (put it in quotes), found a number");
    assert_eq!(complaint(home.path()), wanted);
    let home = home_with("model: {name: 5, provider: 6}\n");
    assert!(complaint(home.path()).ends_with("(and 1 more: see `turnhost config check`)"));
    let home = home_with("a: [\n");
    assert!(complaint(home.path()).contains("no valid YAML"), "{}", complaint(home.path()));
}

#[test]
fn whatever_is_no_file_is_named_and_never_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.yaml");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(complaint(home.path()).ends_with("a pipe, socket or device; a config is a file"));
    std::fs::remove_file(&path).unwrap();
    let socket = UnixListener::bind(&path).unwrap();
    assert!(complaint(home.path()).ends_with("a pipe, socket or device; a config is a file"));
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(complaint(home.path()).ends_with("a folder; a config is a file"));
    std::fs::remove_dir(&path).unwrap();
    symlink("/nowhere/at/all", &path).unwrap();
    assert!(complaint(home.path()).ends_with("a link to a file that does not exist"));
    std::fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    assert!(complaint(home.path()).contains("cannot be read: "));
}

#[test]
fn a_file_without_the_right_to_read_it_and_a_home_that_is_a_file_are_named() {
    let home = home_with("model: {name: big}\n");
    let path = home.path().join("config.yaml");
    assert!(complaint(&path).contains("cannot be read: "), "the home is a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
    // Root reads everything.
    if File::open(&path).is_err() {
        assert!(complaint(home.path()).contains("give this user the right to read it"));
    }
}

#[test]
fn a_file_larger_than_any_config_is_refused_and_one_of_just_that_size_is_read() {
    let mut text = "model: {name: big}\n#".to_owned();
    text.push_str(&"x".repeat(MAX_BYTES - text.len()));
    let home = home_with(&text);
    assert_eq!(Config::read(home.path()).unwrap().model.name.as_deref(), Some("big"));
    let home = home_with(&(text + "x"));
    assert!(complaint(home.path()).contains("larger than 1048576 bytes"));
}

#[test]
fn bytes_that_are_no_utf_8_are_named_with_their_line_and_a_byte_order_mark_is_not_minded() {
    let file = ConfigFile::parse(Path::new("f"), b"model:\n  name: \xff\n");
    assert_eq!(file.problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(2)]);
    let file = ConfigFile::parse(Path::new("f"), b"\xef\xbb\xbfmodel: {name: big}\n");
    assert_eq!((file.config.model.name.as_deref(), file.problems), (Some("big"), vec![]));
    let file = ConfigFile::parse(Path::new("f"), b"model:\r\n  name: big\r\n");
    assert_eq!((file.config.model.name.as_deref(), file.problems), (Some("big"), vec![]));
}

#[test]
fn only_mistyped_keys_are_warned_of() {
    let file =
        ConfigFile::parse(Path::new("/f"), b"x: 1\nmodel: {base_ulr: x}\nagent: {exec: {timeout: 1}}\n");
    let warnings: Vec<String> = file.warnings().collect();
    assert_eq!(warnings, ["/f:2: model.base_ulr: no such key; did you mean model.base_url?"]);
    assert_eq!(file.remarks.len(), 3);
}

/// Pieces of which nearly valid files are made.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "model:",
        "agent:",
        "exec:",
        "argv:",
        "scripted:",
        "delay_s:",
        "delta_count:",
        "personalities:",
        "name:",
        "base_url:",
        " ",
        "  ",
        "\n",
        "\n  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        ": ",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!x ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "#",
        "---\n",
        "...\n",
        "~",
        "1",
        "-1",
        "1e999",
        ".nan",
        "0x1F",
        "true",
        "\t",
        "\u{feff}",
        "\u{85}",
        "\\0",
        "?",
        "é",
        "%YAML 1.2\n",
        "@",
        "`",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_give_a_config_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = ConfigFile::parse(Path::new("f"), &bytes);
        prop_assert!(file.found);
    }

    #[test]
    fn any_nearly_valid_file_gives_a_config_or_a_reason_with_a_line_of_the_file(text in pieces()) {
        let file = ConfigFile::parse(Path::new("f"), text.as_bytes());
        let lines = text.lines().count() + 1;
        for line in file.problems.iter().filter_map(|problem| problem.line) {
            prop_assert!((1..=lines).contains(&line), "line {line} of {lines}");
        }
        for remark in &file.remarks {
            prop_assert!((1..=lines).contains(&remark.line), "line {} of {lines}", remark.line);
        }
    }

    #[test]
    fn a_text_comes_back_as_it_was_written_in_quotes(text in "[ -!#-\\[\\]-~¡-퟿\u{e000}-\u{fefe}\u{10000}-\u{10ffff}]{1,40}") {
        let file = ConfigFile::parse(Path::new("f"), format!("model:\n  name: \"{text}\"\n").as_bytes());
        prop_assert_eq!(file.config.model.name, Some(text));
    }
}
