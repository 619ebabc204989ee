//! The agents that come with the host.

mod command;
pub mod exec;
pub mod scripted;
#[cfg(test)]
pub(crate) mod testing;

use crate::turn::Agents;
use exec::Exec;
use scripted::{Script, Scripted};

/// The built-in agents. `scripted` is the default; it plays `default_script` in turns that bring no script.
pub fn builtin(default_script: Option<Script>) -> Agents {
    Agents::new().with_async("scripted", Scripted::new(default_script)).with_async("exec", Exec::default())
}
