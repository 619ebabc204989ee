//! JSON that is carried and not looked into.

use crate::scan::scan;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON value kept as its text, byte for byte: key order, number spelling and unknown fields survive. Only line
/// breaks between its tokens become spaces, as a frame is one line.
///
/// Equality is equality of the text.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Keeps `text` if it is one valid JSON value. Halves of surrogate pairs in it become U+FFFD, as no frame may have
    /// one.
    ///
    /// # Errors
    /// The parse error of `serde_json` if it is not, or if it is nested deeper than [`crate::limits::MAX_DEPTH`].
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        let scanned = scan(text.as_bytes()).map_err(serde_json::Error::custom)?;
        match scanned.repaired {
            0 => RawValue::from_string(text).and_then(Self::on_one_line),
            _ => RawValue::from_string(scanned.text.into_owned()).and_then(Self::on_one_line),
        }
    }

    /// A line break in valid JSON stands between tokens: inside a string it is written as an escape.
    fn on_one_line(value: Box<RawValue>) -> Result<Self, serde_json::Error> {
        if memchr::memchr2(b'\n', b'\r', value.get().as_bytes()).is_none() {
            return Ok(Self(value));
        }
        RawValue::from_string(value.get().replace(['\n', '\r'], " ")).map(Self)
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

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::on_one_line(Box::deserialize(deserializer)?).map_err(D::Error::custom)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept_byte_for_byte() {
        for text in [r#"{"b":1.50,"a":[1E2,{}],"b":null}"#, "\"\\u00e9\"", "1", " [1 , 2] "] {
            assert_eq!(RawJson::parse(text).unwrap().as_str(), text.trim());
            assert_eq!(serde_json::from_str::<RawJson>(text).unwrap().as_str(), text.trim());
        }
    }

    #[test]
    fn no_line_break_gets_into_a_frame() {
        let pretty = "{\r\n  \"a\": [\n    \"x\\ny\"\n  ]\n}";
        let expected = "{    \"a\": [     \"x\\ny\"   ] }";
        assert_eq!(RawJson::parse(pretty).unwrap().as_str(), expected);
        assert_eq!(serde_json::from_str::<RawJson>(pretty).unwrap().as_str(), expected);
    }

    #[test]
    fn no_lone_surrogate_gets_into_a_frame() {
        assert_eq!(RawJson::parse(r#"["\ud800"]"#).unwrap().as_str(), "[\"\u{fffd}\"]");
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_refused() {
        for text in ["", "{", "1 2", "nul", "[\"\t\"]", &"[".repeat(1_000_000)] {
            assert!(RawJson::parse(text).is_err(), "{text:.20}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(RawJson::parse(deep).unwrap_err().to_string(), "nested deeper than 128");
    }

    #[test]
    fn a_value_of_any_type_has_its_compact_text() {
        let value = RawJson::from_value(&("a\n", 1)).unwrap();
        assert_eq!(value.as_str(), r#"["a\n",1]"#);
        assert_eq!(value.read::<(String, u8)>().unwrap(), ("a\n".to_owned(), 1));
        assert!(value.read::<u8>().is_err());
        assert_ne!(value, RawJson::parse(r#"["a\n", 1]"#).unwrap());
    }
}
