//! The environment of a host: pure, so that a table test can list what passes.
//!
//! # What `Scrubbed` leaves out
//!
//! | group | names |
//! |---|---|
//! | loader hooks | `LD_PRELOAD`, `LD_AUDIT`, `LD_DEBUG`, `LD_DEBUG_OUTPUT`, `LD_PROFILE`, `LD_PROFILE_OUTPUT`, `GCONV_PATH`, `GLIBC_TUNABLES`, `DYLD_INSERT_LIBRARIES` |
//! | shell hooks | `BASH_ENV`, `ENV`, `SHELLOPTS`, `BASHOPTS`, `PROMPT_COMMAND`, `PS4`, `ZDOTDIR`, `BASH_FUNC_*` |
//! | interpreter hooks | `PYTHONSTARTUP`, `PYTHONINSPECT`, `PYTHONBREAKPOINT`, `PYTHONWARNINGS`, `PYTHONHOME`, `PYTHONEXECUTABLE`, `NODE_OPTIONS`, `NODE_REPL_EXTERNAL_MODULE`, `PERL5OPT`, `PERL5DB`, `RUBYOPT`, `LUA_INIT*`, `JAVA_TOOL_OPTIONS`, `_JAVA_OPTIONS`, `JDK_JAVA_OPTIONS`, `PHPRC`, `PHP_INI_SCAN_DIR`, `DOTNET_STARTUP_HOOKS`, `COR_*`, `CORECLR_*` |
//! | programs run by others | `GIT_SSH`, `GIT_SSH_COMMAND`, `GIT_ASKPASS`, `GIT_PROXY_COMMAND`, `GIT_EXTERNAL_DIFF`, `GIT_EDITOR`, `GIT_SEQUENCE_EDITOR`, `GIT_PAGER`, `GIT_EXEC_PATH`, `GIT_TEMPLATE_DIR`, `SSH_ASKPASS`, `SUDO_ASKPASS`, `LESSOPEN`, `LESSCLOSE` |
//! | the repository a git hook runs in | `GIT_DIR`, `GIT_WORK_TREE`, `GIT_INDEX_FILE`, `GIT_OBJECT_DIRECTORY`, `GIT_ALTERNATE_OBJECT_DIRECTORIES`, `GIT_COMMON_DIR`, `GIT_CONFIG*` |
//! | secrets by name | a word `KEY`, `KEYS`, `TOKEN`, `TOKENS` (not `MAX_TOKENS` and the like), `SECRET(S)`, `PASSWORD(S)`, `PASSWD`, `PASS`, `PASSPHRASE`, `PWD` (not `PWD`, `OLDPWD` themselves), `CREDENTIAL(S)`, `CREDS`, `COOKIE(S)`, `JWT`, `PAT`, `BEARER`, `DSN`, `SIGNATURE` between underscores, or a word that ends in `KEY` (`APIKEY`), `TOKEN`, `SECRET`, `PASSWORD`, `PASSWD`; names that end in `_AUTH`, `_CONNECTION_STRING`; `DATABASE_URL`, `*_DATABASE_URL` |
//!
//! Search paths (`LD_LIBRARY_PATH`, `PYTHONPATH`, `NODE_PATH`, …) pass: programs cannot start without them. So does
//! every name that begins with `HERMES_` or `TURNHOST_`: those are addressed to the host. `env_pass` passes a name
//! whatever it looks like, `env_set` comes last and wins.
//!
//! Two names never reach a host, not even by `env_set`: `TURNHOST_GUARD`, by which a process becomes a guard, and
//! `TURNHOST_OWNER`, which the spawn sets itself.

use crate::config::{Config, EnvPolicy};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Marks a process as a guard and says which version of the control socket it must speak.
pub(crate) const GUARD_VARIABLE: &str = "TURNHOST_GUARD";
/// Marks every process of one host's tree with a token that no other spawn has.
pub(crate) const OWNER_VARIABLE: &str = "TURNHOST_OWNER";

/// The complete environment of a host but for [`OWNER_VARIABLE`], sorted by name. `inherited` is the embedder's own.
pub(crate) fn host_environment(
    config: &Config,
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let mut host: BTreeMap<OsString, OsString> = inherited
        .into_iter()
        .filter(|(name, _)| config.env_pass.contains(name) || passes(config.env_policy, name))
        .collect();
    // A Python host would keep its hello in a block buffer, since its stdout is a pipe.
    host.entry("PYTHONUNBUFFERED".into()).or_insert_with(|| "1".into());
    let heartbeat = config.heartbeat.as_secs().to_string();
    host.insert("HERMES_COMPUTE_HOST_HEARTBEAT_SECS".into(), heartbeat.into());
    let max_frame = config.max_frame_bytes.to_string();
    host.insert("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES".into(), max_frame.into());
    host.extend(config.env_set.iter().cloned());
    host.remove(OsStr::new(GUARD_VARIABLE));
    host.remove(OsStr::new(OWNER_VARIABLE));
    // An empty name or one with `=` or NUL cannot be told apart from another variable by the host.
    host.retain(|name, _| !name.is_empty() && !name.as_encoded_bytes().contains(&b'='));
    host.into_iter().collect()
}

fn passes(policy: EnvPolicy, name: &OsStr) -> bool {
    match policy {
        EnvPolicy::Inherit => true,
        EnvPolicy::Allow => allowed(&name.to_string_lossy()),
        EnvPolicy::Scrubbed => {
            let name = name.to_string_lossy().to_ascii_uppercase();
            addressed_to_the_host(&name) || !(is_hook(&name) || looks_secret(&name))
        }
    }
}

fn allowed(name: &str) -> bool {
    matches!(name, "PATH" | "HOME" | "LANG" | "TMPDIR") || name.starts_with("HERMES_")
}

fn addressed_to_the_host(name: &str) -> bool {
    name.starts_with("HERMES_") || name.starts_with("TURNHOST_")
}

const HOOKS: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_PROFILE",
    "LD_PROFILE_OUTPUT",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "ZDOTDIR",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONWARNINGS",
    "PYTHONHOME",
    "PYTHONEXECUTABLE",
    "NODE_OPTIONS",
    "NODE_REPL_EXTERNAL_MODULE",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "DOTNET_STARTUP_HOOKS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_PROXY_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "LESSOPEN",
    "LESSCLOSE",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
];

const HOOK_PREFIXES: &[&str] = &["BASH_FUNC_", "LUA_INIT", "COR_", "CORECLR_", "GIT_CONFIG"];

fn is_hook(name: &str) -> bool {
    HOOKS.contains(&name) || HOOK_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

const SECRET_WORDS: &[&str] = &[
    "KEYS",
    "TOKENS",
    "SECRETS",
    "PASSWORDS",
    "PASS",
    "PASSPHRASE",
    "PWD",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "COOKIE",
    "COOKIES",
    "JWT",
    "PAT",
    "BEARER",
    "DSN",
    "SIGNATURE",
];

const SECRET_WORD_ENDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD"];

fn looks_secret(name: &str) -> bool {
    // The shell's two directories end in a word that elsewhere (MYSQL_PWD) is a password.
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    if name == "DATABASE_URL"
        || ["_DATABASE_URL", "_CONNECTION_STRING", "_AUTH"].iter().any(|end| name.ends_with(end))
    {
        return true;
    }
    // A model's budget of tokens is a number, not a secret.
    let budget = ["MAX_", "MIN_", "NUM_"].iter().any(|start| name.contains(&format!("{start}TOKENS")))
        || name.ends_with("_OUTPUT_TOKENS")
        || name.ends_with("_INPUT_TOKENS")
        || name.ends_with("_CONTEXT_TOKENS");
    name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| {
        (SECRET_WORDS.contains(&word) && !(budget && word == "TOKENS"))
            || SECRET_WORD_ENDS.iter().any(|end| word.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn config(policy: EnvPolicy) -> Config {
        Config { env_policy: policy, ..Config::new(["host"]) }
    }

    fn names(config: &Config, inherited: &[&str]) -> Vec<String> {
        let inherited = inherited.iter().map(|name| (OsString::from(name), OsString::from("inherited")));
        host_environment(config, inherited)
            .into_iter()
            .map(|(name, _)| name.into_string().unwrap())
            .filter(|name| !OURS.contains(&name.as_str()))
            .collect()
    }

    const OURS: &[&str] =
        &["HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", "PYTHONUNBUFFERED"];

    const HARMLESS: &[&str] = &[
        "AWS_PROFILE",
        "AWS_REGION",
        "CARGO_HOME",
        "COLORTERM",
        "COMPUTE_TOKENIZER",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "EDITOR",
        "GIT_AUTHOR_NAME",
        "HERMES_API_KEY",
        "HERMES_HOME",
        "HOME",
        "HTTPS_PROXY",
        "KEYBOARD_LAYOUT",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "MAX_TOKENS",
        "MIN_TOKENS",
        "MODEL_CONTEXT_TOKENS",
        "MODEL_INPUT_TOKENS",
        "MODEL_MAX_TOKENS",
        "MODEL_OUTPUT_TOKENS",
        "NUM_TOKENS",
        "OLDPWD",
        "OPENAI_BASE_URL",
        "PATH",
        "PATTERN",
        "PWD",
        "PYTHONPATH",
        "SHELL",
        "SSH_AUTH_SOCK",
        "TERM",
        "TMPDIR",
        "TOKENIZERS_PARALLELISM",
        "TURNHOST_TEST_TOKEN",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "XAUTHORITY",
        "XDG_RUNTIME_DIR",
        "no_proxy",
    ];

    const SECRET: &[&str] = &[
        "ANTHROPIC_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CONNECTION_STRING",
        "DATABASE_URL",
        "DB_PASS",
        "DJANGO_SECRET_KEY_FALLBACK",
        "GH_PAT",
        "GITHUB_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "MYSQL_PWD",
        "MY_API_KEY",
        "MY_APIKEY",
        "NPM_CONFIG__AUTH",
        "OPENAI_API_KEY",
        "PGPASSWORD",
        "SENTRY_DSN",
        "SESSION_COOKIE",
        "SSH_KEY_PASSPHRASE",
        "VAULT_TOKENS",
        "github_token",
        "my.secret",
    ];

    const HOOKED: &[&str] = &[
        "BASH_ENV",
        "BASH_FUNC_ls%%",
        "CORECLR_PROFILER_PATH",
        "ENV",
        "GIT_CONFIG_COUNT",
        "GIT_DIR",
        "GIT_SSH_COMMAND",
        "JAVA_TOOL_OPTIONS",
        "LD_AUDIT",
        "LD_PRELOAD",
        "LESSOPEN",
        "LUA_INIT_5_4",
        "NODE_OPTIONS",
        "PERL5OPT",
        "PYTHONSTARTUP",
        "RUBYOPT",
    ];

    #[test]
    fn scrubbed_passes_exactly_the_harmless_names() {
        let all = [HARMLESS, SECRET, HOOKED].concat();
        assert_eq!(names(&config(EnvPolicy::Scrubbed), &all), HARMLESS);
    }

    #[test]
    fn every_name_of_the_written_list_of_hooks_is_left_out() {
        assert_eq!(names(&config(EnvPolicy::Scrubbed), HOOKS), Vec::<String>::new());
    }

    #[test]
    fn the_written_list_of_hooks_is_the_one_above() {
        let rows = [
            "| loader hooks |",
            "| shell hooks |",
            "| interpreter hooks |",
            "| programs run by others |",
            "| the repository",
        ];
        let mut written: Vec<&str> = include_str!("environment.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! "))
            .filter(|line| rows.iter().any(|row| line.starts_with(row)))
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .collect();
        let prefixes: Vec<String> = HOOK_PREFIXES.iter().map(|prefix| format!("{prefix}*")).collect();
        let mut listed: Vec<&str> =
            HOOKS.iter().copied().chain(prefixes.iter().map(String::as_str)).collect();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
    }

    #[test]
    fn inherit_passes_everything_but_the_marks_of_a_guard() {
        let all = ["TURNHOST_GUARD", "TURNHOST_OWNER", "GITHUB_TOKEN", "LD_PRELOAD"];
        assert_eq!(names(&config(EnvPolicy::Inherit), &all), ["GITHUB_TOKEN", "LD_PRELOAD"]);
    }

    #[test]
    fn allow_passes_four_names_and_those_of_hermes() {
        let all = [HARMLESS, SECRET, HOOKED].concat();
        let passed = ["HERMES_API_KEY", "HERMES_HOME", "HOME", "LANG", "PATH", "TMPDIR"];
        assert_eq!(names(&config(EnvPolicy::Allow), &all), passed);
    }

    #[test]
    fn a_name_that_is_passed_explicitly_wins_over_the_policy() {
        for policy in [EnvPolicy::Scrubbed, EnvPolicy::Allow] {
            let config = Config { env_pass: vec!["GITHUB_TOKEN".into()], ..config(policy) };
            assert_eq!(names(&config, &["GITHUB_TOKEN", "GITLAB_TOKEN"]), ["GITHUB_TOKEN"]);
        }
    }

    #[test]
    fn what_is_set_comes_last_except_for_the_marks_of_a_guard() {
        let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let config = Config {
            env_set: vec![
                set("PYTHONUNBUFFERED", "0"),
                set("HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "7"),
                set("AGENT_KEY", "k"),
                set("TURNHOST_GUARD", "1"),
                set("TURNHOST_OWNER", "me"),
                set("", "nameless"),
                set("A=B", "ambiguous"),
            ],
            ..config(EnvPolicy::Allow)
        };
        let max_frame = config.max_frame_bytes.to_string();
        let environment =
            host_environment(&config, [set("PYTHONUNBUFFERED", "1"), set("AGENT_KEY", "inherited")]);
        assert_eq!(
            environment,
            [
                set("AGENT_KEY", "k"),
                set("HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "7"),
                set("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", &max_frame),
                set("PYTHONUNBUFFERED", "0"),
            ]
        );
    }

    #[test]
    fn the_host_is_told_heartbeat_frame_limit_and_to_leave_output_unbuffered() {
        let config = Config {
            heartbeat: std::time::Duration::from_millis(3900),
            max_frame_bytes: 65_536,
            ..config(EnvPolicy::Scrubbed)
        };
        let environment = host_environment(&config, []);
        let expected = [
            ("HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "3"),
            ("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", "65536"),
            ("PYTHONUNBUFFERED", "1"),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert_eq!(environment, expected);
    }
}
