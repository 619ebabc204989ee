//! JSON Schema of every frame, generated from the types (feature `schema`). The files in `schemas/` are these.

use crate::frame::{EventBody, HostCommand, HostEvent};
use schemars::Schema;
use serde_json::{Value, json};

/// The schema of every frame by its type, and of each kind of `event` by `event.KIND`.
///
/// A schema is what a reader relies on: fields that may be absent are not in `required`, and unknown fields are
/// allowed everywhere.
pub fn frame_schemas() -> Vec<(String, Schema)> {
    let to_host = HostCommand::schemas().into_iter().map(|(name, schema)| (name, schema, false));
    let from_host = HostEvent::schemas().into_iter().map(|(name, schema)| (name, schema, true));
    let mut schemas = Vec::new();
    for (name, mut schema, from_host) in to_host.chain(from_host) {
        set_constant(&mut schema, "type", name);
        if from_host {
            let host_ns = json!({
                "description": "Nanoseconds since the host started, monotonic.",
                "type": "integer",
                "minimum": 0
            });
            set_property(&mut schema, "host_ns", host_ns);
        }
        schema.insert("title".to_owned(), name.into());
        if name == "event" {
            schemas.extend(event_kinds(&schema));
        }
        schemas.push((name.to_owned(), schema));
    }
    schemas
}

/// The schema of `event` once for each kind, with the fields of that kind.
fn event_kinds(event: &Schema) -> Vec<(String, Schema)> {
    let kinds = schemars::schema_for!(EventBody);
    let definitions = kinds.get("$defs");
    let alternatives = kinds.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    alternatives
        .filter_map(|alternative| {
            let fields = alternative.get("properties")?.as_object()?;
            let kind = fields.get("kind")?.get("const")?.as_str()?;
            let mut schema = event.clone();
            for (name, field) in fields {
                set_property(&mut schema, name, field.clone());
            }
            for name in alternative.get("required")?.as_array()? {
                require(&mut schema, name.as_str()?);
            }
            if let Some(definitions) = definitions.filter(|_| alternative.to_string().contains("$ref")) {
                schema.insert("$defs".to_owned(), definitions.clone());
            }
            schema.insert("title".to_owned(), format!("event {kind}").into());
            schema.insert("description".to_owned(), alternative.get("description")?.clone());
            Some((format!("event.{kind}"), schema))
        })
        .collect()
}

fn set_constant(schema: &mut Schema, field: &str, value: &str) {
    set_property(schema, field, json!({ "const": value }));
    require(schema, field);
}

fn set_property(schema: &mut Schema, field: &str, value: Value) {
    let properties = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert(field.to_owned(), value);
    }
}

fn require(schema: &mut Schema, field: &str) {
    let required = schema.ensure_object().entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required
        && required.iter().all(|known| known != field)
    {
        required.push(field.into());
        required.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    const REWRITE: &str = "UPDATE_SCHEMAS=1 cargo test -p turnhost-protocol --lib schema";

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas")
    }

    fn generated() -> BTreeMap<String, Value> {
        let file = |(name, schema): (String, Schema)| (format!("{name}.json"), schema.to_value());
        frame_schemas().into_iter().map(file).collect()
    }

    fn committed() -> BTreeMap<String, Value> {
        let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            (name, serde_json::from_str(&text).unwrap_or(Value::String(text)))
        };
        files.map(read).collect()
    }

    fn rewrite() {
        std::fs::remove_dir_all(folder()).unwrap();
        std::fs::create_dir_all(folder()).unwrap();
        for (name, schema) in frame_schemas() {
            let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
            std::fs::write(folder().join(format!("{name}.json")), text).unwrap();
        }
    }

    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            rewrite();
        }
        let (generated, committed) = (generated(), committed());
        let names = |files: &BTreeMap<String, Value>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&committed), names(&generated), "files in protocol/schemas; run: {REWRITE}");
        for (name, schema) in &generated {
            assert!(
                committed[name] == *schema,
                "protocol/schemas/{name} is not what the types give; run: {REWRITE}"
            );
        }
    }

    #[test]
    fn every_frame_and_every_kind_of_event_has_a_schema() {
        let kinds = [
            "thought",
            "tool_call",
            "tool_call_update",
            "plan",
            "usage",
            "approval_request",
            "approval_resolved",
            "status",
            "busy_until",
        ];
        let mut expected: Vec<String> = kinds.iter().map(|kind| format!("event.{kind}.json")).collect();
        expected.extend(HostCommand::TYPES.iter().chain(HostEvent::TYPES).map(|name| format!("{name}.json")));
        expected.sort();
        assert_eq!(generated().into_keys().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_what_a_reader_needs_is_required() {
        let required: BTreeMap<String, Vec<String>> = frame_schemas()
            .into_iter()
            .map(|(name, schema)| {
                (name, serde_json::from_value(schema.get("required").unwrap().clone()).unwrap())
            })
            .collect();
        assert_eq!(required["turn.start"], ["type"]);
        assert_eq!(required["hb"], ["type"]);
        assert_eq!(required["turn.end"], ["request_id", "type"]);
        assert_eq!(required["hello"], ["boot_id", "host_pid", "type"]);
        assert_eq!(
            required["event.usage"],
            ["calls", "input", "kind", "output", "request_id", "total", "type"]
        );
    }
}
