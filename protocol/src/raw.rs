//! JSON that is carried and not looked into.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON value kept as its text, byte for byte: key order, number spelling and unknown fields survive.
///
/// Equality is equality of the text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Keeps `text` if it is one valid JSON value.
    ///
    /// # Errors
    /// The parse error of `serde_json` if it is not.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// The JSON text of any serialisable value.
    ///
    /// # Errors
    /// The error of the value's own `Serialize`.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Reads the text as `T`.
    ///
    /// # Errors
    /// The parse error of `serde_json`, naming the field.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

#[cfg(any(test, feature = "schema"))]
impl schemars::JsonSchema for RawJson {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!(true)
    }
}
