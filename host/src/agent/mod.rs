//! The agents that come with the host.

mod command;
pub mod exec;
pub mod openai;
pub mod scripted;
#[cfg(test)]
pub(crate) mod testing;

use crate::config::Config;
use crate::turn::Agents;
use exec::Exec;
use openai::Openai;
use scripted::{Script, Scripted};

/// The built-in agents, with the defaults that `config` gives them. `scripted` is the default; it plays
/// `default_script` in turns that bring no script. `openai` has the key of the environment.
pub fn builtin(default_script: Option<Script>, config: &Config) -> Agents {
    let config = &config.agent;
    let scripted =
        Scripted::new(default_script).with_chunks(config.scripted_delta_count, config.scripted_delay);
    Agents::new()
        .with_async("scripted", scripted)
        .with_async("exec", Exec::default().with_argv(config.exec_argv.clone()))
        .with_async("openai", Openai::from_env())
}
