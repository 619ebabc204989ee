//! What `config show` says: pure.

use crate::table::{aligned, cell};
use serde_json::{Map, Value, json};
use std::time::Duration;
use turnhost_host::config::{API_KEY, ConfigFile, Resolved, Settings, Source};

/// One setting.
struct Row {
    name: String,
    /// `Null`: nobody gave one.
    value: Value,
    source: Option<Source>,
}

/// A table of every setting.
pub(super) fn text(settings: &Settings, file: &ConfigFile) -> String {
    let there = if file.found { "" } else { " (does not exist)" };
    let head = format!("config  {}{there}\n\n", file.path.display());
    let mut table = vec![["setting", "value", "from"].map(str::to_owned)];
    table.extend(rows(settings).into_iter().map(|row| {
        let source = row.source.map(|source| source_text(&source)).unwrap_or_default();
        [cell(&row.name), cell(&value_text(&row.value)), source]
    }));
    head + &aligned(&table)
}

/// The same as one object, the settings by their names.
pub(super) fn json(settings: &Settings, file: &ConfigFile) -> Value {
    let rows = rows(settings).into_iter().map(|row| {
        let mut fields = row.source.as_ref().map(source_json).unwrap_or_default();
        fields.insert("value".to_owned(), row.value);
        (row.name, Value::Object(fields))
    });
    json!({
        "file": file.path.to_string_lossy(),
        "found": file.found,
        "settings": rows.collect::<Map<_, _>>(),
        "warnings": file.warnings().chain(settings.ignored.iter().cloned()).collect::<Vec<_>>(),
    })
}

fn rows(settings: &Settings) -> Vec<Row> {
    // Every field is named, so that a new one is not forgotten.
    let Settings {
        home,
        agent,
        provider,
        model,
        base_url,
        api_key,
        system_prompt,
        exec_argv,
        delta_count,
        delay,
        personalities,
        workers,
        heartbeat,
        drain,
        max_frame_bytes,
        rpc_events,
        ignored: _,
    } = settings;
    let mut rows = vec![
        always("home", home, |home| home.to_string_lossy().into()),
        optional("model.provider", provider.as_ref(), |text| text.as_str().into()),
        optional("model.name", model.as_ref(), |text| text.as_str().into()),
        optional("model.base_url", base_url.as_ref(), |url| without_password(url).into()),
        Row {
            name: API_KEY.to_owned(),
            value: if api_key.is_some() { json!("set") } else { json!("unset") },
            source: api_key.clone(),
        },
        always("agent.name", agent, |text| text.as_str().into()),
        optional("agent.system_prompt", system_prompt.as_ref(), |text| text.as_str().into()),
        optional("agent.exec.argv", exec_argv.as_ref(), |argv| json!(argv)),
        always("agent.scripted.delta_count", delta_count, |count| (*count).into()),
        always("agent.scripted.delay_s", delay, |delay| delay.as_secs_f64().into()),
    ];
    rows.extend(
        personalities
            .iter()
            .map(|(name, text)| always(&format!("personalities.{name}"), text, |text| text.as_str().into())),
    );
    rows.extend([
        always("workers", workers, |workers| (*workers).into()),
        always("heartbeat_s", heartbeat, |period| period.as_ref().map_or(0.0, Duration::as_secs_f64).into()),
        always("drain_s", drain, |drain| drain.as_secs_f64().into()),
        always("max_frame_bytes", max_frame_bytes, |bytes| (*bytes).into()),
        always("rpc_events", rpc_events, |mirrored| (*mirrored).into()),
    ]);
    rows
}

fn always<T>(name: &str, resolved: &Resolved<T>, value: impl Fn(&T) -> Value) -> Row {
    optional(name, Some(resolved), value)
}

fn optional<T>(name: &str, resolved: Option<&Resolved<T>>, value: impl Fn(&T) -> Value) -> Row {
    Row {
        name: name.to_owned(),
        value: resolved.map_or(Value::Null, |resolved| value(&resolved.value)),
        source: resolved.map(|resolved| resolved.source.clone()),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The file is named above the table.
fn source_text(source: &Source) -> String {
    match source {
        Source::File { path, line } => {
            format!("{}:{line}", path.file_name().unwrap_or_default().to_string_lossy())
        }
        Source::Flag(_) | Source::Variable(_) | Source::Because(_) | Source::Default => source.to_string(),
    }
}

fn source_json(source: &Source) -> Map<String, Value> {
    let fields = match source {
        Source::Flag(name) => json!({"source": "flag", "name": name}),
        Source::Variable(name) => json!({"source": "variable", "name": name}),
        Source::File { path, line } => {
            json!({"source": "file", "file": path.to_string_lossy(), "line": line})
        }
        Source::Because(what) => json!({"source": "because", "of": what}),
        Source::Default => json!({"source": "default"}),
    };
    match fields {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// A URL may carry a name and a password before its host; they are nobody's business on a screen.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A query may hold a key.
    let rest = rest.split_once('?').map_or_else(|| rest.to_owned(), |(rest, _)| format!("{rest}?***"));
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority);
    // A password that was not escaped ends the authority early, and reads as a port that is no number.
    let odd_port =
        authority.rsplit_once(':').is_some_and(|(_, port)| !port.bytes().all(|b| b.is_ascii_digit()));
    match (authority.rsplit_once('@'), url.rsplit_once('@')) {
        (Some((_, host)), _) => format!("{scheme}://***@{host}{path}"),
        (None, Some((_, host))) if odd_port && !authority.starts_with('[') => {
            format!("{scheme}://***@{host}")
        }
        (None, _) => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_no_password_is_shown_however_it_is_written_and_no_query() {
        for (url, shown) in [
            ("http://me:secret@one/v1", "http://***@one/v1"),
            ("http://user:p#w@host", "http://***@host"),
            ("http://user:p/w@host/v1", "http://***@host/v1"),
            ("http://one:8080/v1?api-key=secret", "http://one:8080/v1?***"),
            ("http://one:8080/a@b", "http://one:8080/a@b"),
            ("http://[::1]/v1", "http://[::1]/v1"),
            ("http://[::1]:80/v1", "http://[::1]:80/v1"),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }
    use pretty_assertions::assert_eq;
    use std::path::Path;
    use turnhost_host::HostArgs;

    const FILE: &str = "model: {base_url: 'http://me:secret@one/v1?k=@'}\nagent: {system_prompt: \"a\\nb\", \
                        exec: {argv: [cat, -n]}}\npersonalities: {pirate: Arr}\n";

    fn resolved(variables: &[(&str, &str)]) -> (Settings, ConfigFile) {
        let file = ConfigFile::parse(Path::new("/h/config.yaml"), FILE.as_bytes());
        let args = HostArgs { model: Some("big".to_owned()), ..HostArgs::default() };
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        (Settings::resolve(&args, variable, &file), file)
    }

    #[test]
    fn every_setting_has_a_row_with_its_value_and_its_source() {
        let (settings, file) = resolved(&[("HERMES_HOME", "/h"), ("OPENAI_API_KEY", "sk-secret")]);
        let text = text(&settings, &file);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
        let row = |name: &str| -> Vec<&str> {
            let found = rows.iter().find(|row| row.first() == Some(&name));
            found
                .unwrap_or_else(|| panic!("{name} in {text}"))
                .iter()
                .copied()
                .filter(|c| !c.is_empty())
                .collect()
        };
        assert_eq!(row("config"), ["config", "/h/config.yaml"]);
        assert_eq!(row("home"), ["home", "/h", "HERMES_HOME"]);
        assert_eq!(row("model.provider"), ["model.provider", "unset"]);
        assert_eq!(row("model.name"), ["model.name", "big", "--model"]);
        assert_eq!(row("model.base_url"), ["model.base_url", "http://***@one/v1?***", "config.yaml:1"]);
        assert_eq!(row("OPENAI_API_KEY"), ["OPENAI_API_KEY", "set", "OPENAI_API_KEY"]);
        assert_eq!(row("agent.name"), ["agent.name", "openai", "because a base URL is set"]);
        assert_eq!(row("agent.system_prompt"), ["agent.system_prompt", "a\\nb", "config.yaml:2"]);
        assert_eq!(row("agent.exec.argv"), ["agent.exec.argv", "[\"cat\",\"-n\"]", "config.yaml:2"]);
        assert_eq!(row("personalities.pirate"), ["personalities.pirate", "Arr", "config.yaml:3"]);
        assert_eq!(row("agent.scripted.delta_count"), ["agent.scripted.delta_count", "24", "default"]);
        assert_eq!(row("workers"), ["workers", "8", "default"]);
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn the_json_form_has_the_same_settings_and_no_secret_either() {
        let (settings, file) =
            resolved(&[("OPENAI_API_KEY", "sk-secret"), ("HERMES_TUI_RPC_POOL_WORKERS", "x")]);
        let json = json(&settings, &file);
        assert_eq!(
            json["settings"]["model.name"],
            json!({"value": "big", "source": "flag", "name": "--model"})
        );
        let system_prompt = json!({"value": "a\nb", "source": "file", "file": "/h/config.yaml", "line": 2});
        assert_eq!(json["settings"]["agent.system_prompt"], system_prompt);
        assert_eq!(json["settings"]["model.provider"], json!({"value": null}));
        assert_eq!(json["settings"]["OPENAI_API_KEY"]["value"], "set");
        assert_eq!(json["settings"].as_object().map(Map::len), Some(rows(&settings).len()));
        assert_eq!(json["warnings"].as_array().map(Vec::len), Some(1));
        assert!(!json.to_string().contains("secret"), "{json}");
    }

    #[test]
    fn a_password_in_a_url_is_never_shown() {
        for (url, shown) in [
            ("http://one/v1", "http://one/v1"),
            ("http://key@one", "http://***@one"),
            ("https://me:a@b@one:5/v1", "https://***@one:5/v1"),
            ("http://one/@me", "http://one/@me"),
            ("one", "one"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
