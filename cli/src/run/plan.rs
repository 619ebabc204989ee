//! What a command line of `run` means: pure, but for reading the files that it names.

use crate::run::{AgentName, Args};
use clap::ValueEnum as _;
use serde_json::{Value, json};
use std::path::Path;
use turnhost_host::agent::scripted::parse_script;
use turnhost_protocol::RawJson;

/// What will be run.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// The `agent` field of the frame.
    pub agent: Value,
    /// Why this agent, if nobody named it.
    pub chosen: Option<String>,
    pub prompt: Prompt,
}

/// Where the prompt comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Given(String),
    Stdin,
    Empty,
}

/// What environment and config say about turns whose command line names no agent.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The config's `agent.name`.
    pub agent: Option<String>,
    /// Whether the config names a program for the exec agent.
    pub has_program: bool,
    /// Whether `OPENAI_BASE_URL` or the config names a server.
    pub has_server: bool,
    /// Whether `OPENAI_API_KEY` is set.
    pub has_key: bool,
}

/// Decides which agent runs and where its prompt comes from.
///
/// # Errors
/// What is wrong with the command line and what to write instead.
pub(super) fn plan(args: &Args, known: &Known, stdin_is_terminal: bool) -> Result<Plan, String> {
    let has_program = !args.program.is_empty();
    let (name, chosen) = choose(args, known)?;
    if has_program && name != AgentName::Exec {
        let word = name.word();
        return Err(format!("--agent {word} runs no program: drop it, or what stands after --"));
    }
    if args.script.is_some() && name != AgentName::Scripted {
        return Err("--script is for the scripted agent: drop it, or use --agent scripted".to_owned());
    }
    if (args.base_url.is_some() || args.model.is_some()) && name != AgentName::Openai {
        return Err(
            "--base-url and --model are for the openai agent: drop them, or use --agent openai".to_owned()
        );
    }
    let agent = match name {
        AgentName::Scripted => json!({"name": "scripted"}),
        AgentName::Exec if !has_program && !known.has_program => {
            return Err("--agent exec needs a program: turnhost run --agent exec [PROMPT] -- PROGRAM ARGS…"
                .to_owned());
        }
        // The host knows the config's program.
        AgentName::Exec if !has_program => json!({"name": "exec"}),
        AgentName::Exec => {
            let argv = args.program.iter().map(|word| {
                word.to_str().ok_or_else(|| format!("{word:?} is no UTF-8, which a frame cannot carry"))
            });
            json!({"name": "exec", "argv": argv.collect::<Result<Vec<_>, _>>()?})
        }
        AgentName::Openai => {
            let given = [("base_url", &args.base_url), ("model", &args.model)];
            let given = given.into_iter().filter_map(|(field, value)| Some((field, value.as_ref()?)));
            let mut agent = serde_json::Map::from_iter([("name".to_owned(), json!("openai"))]);
            agent.extend(given.map(|(field, value)| (field.to_owned(), json!(value))));
            Value::Object(agent)
        }
    };
    let prompt = match args.prompt.as_deref() {
        Some("-") => Prompt::Stdin,
        Some(text) => Prompt::Given(text.to_owned()),
        None if !stdin_is_terminal => Prompt::Stdin,
        None if name == AgentName::Exec => Prompt::Empty,
        None => {
            return Err("no prompt: give one, as turnhost run \"hello\", or pipe it into stdin".to_owned());
        }
    };
    let chosen = chosen.map(|why| format!("agent {} ({why})", name.word()));
    Ok(Plan { agent, chosen, prompt })
}

/// The agent, and why, if the command line does not name it.
fn choose(args: &Args, known: &Known) -> Result<(AgentName, Option<&'static str>), String> {
    if let Some(name) = args.agent {
        return Ok((name, None));
    }
    let because = |name, why| Ok((name, Some(why)));
    if !args.program.is_empty() {
        return because(AgentName::Exec, "a program was given after --");
    }
    if args.script.is_some() {
        return because(AgentName::Scripted, "--script was given");
    }
    if args.base_url.is_some() {
        return because(AgentName::Openai, "--base-url was given");
    }
    if args.model.is_some() {
        return because(AgentName::Openai, "--model was given");
    }
    if let Some(name) = &known.agent {
        let name = AgentName::from_str(name, false).map_err(|_| {
            format!("agent.name of config.yaml is {name:?}, which turnhost run does not have; use --agent")
        })?;
        return because(name, "agent.name of config.yaml");
    }
    if known.has_server {
        return because(AgentName::Openai, "OPENAI_BASE_URL or model.base_url of config.yaml is set");
    }
    if known.has_key {
        return because(AgentName::Openai, "OPENAI_API_KEY is set");
    }
    because(
        AgentName::Scripted,
        "none was named, and no program was given after --; it only echoes the prompt, for a try",
    )
}

/// Reads the steps of a script: a JSON list, or one step a line.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn script(path: &Path) -> Result<Vec<RawJson>, String> {
    let named = |what: String| format!("--script {}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    steps(&text).map_err(named)
}

fn steps(text: &str) -> Result<Vec<RawJson>, String> {
    // The host reads it again; here a mistake is one of the command line, found before anything is started.
    parse_script(text).map_err(|error| error.to_string())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| RawJson::parse(line).map_err(|error| error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use pretty_assertions::assert_eq;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn planned(words: &[&str], stdin_is_terminal: bool) -> Result<Plan, String> {
        let line = Line::try_parse_from(std::iter::once(&"run").chain(words)).expect("a command line");
        plan(&line.args, &Known::default(), stdin_is_terminal)
    }

    fn chosen(words: &[&str], known: &Known) -> Result<(Value, String), String> {
        let line = Line::try_parse_from(std::iter::once(&"run").chain(words)).expect("a command line");
        let plan = plan(&line.args, known, true)?;
        Ok((plan.agent, plan.chosen.unwrap_or_default()))
    }

    #[test]
    fn without_a_name_a_program_means_exec_and_anything_else_scripted() {
        let plan = planned(&["hi", "--", "cat", "-n"], true).expect("a plan");
        assert_eq!(plan.agent, json!({"name": "exec", "argv": ["cat", "-n"]}));
        assert!(plan.chosen.is_some_and(|why| why.contains("exec") && why.contains("after --")));
        let plan = planned(&["hi"], true).expect("a plan");
        assert_eq!(plan.agent, json!({"name": "scripted"}));
        assert!(plan.chosen.is_some_and(|why| why.contains("scripted") && why.contains("none was named")));
    }

    #[test]
    fn a_server_or_a_key_means_openai_unless_something_else_is_named() {
        let nothing = Known::default;
        let server = || Known { has_server: true, ..Known::default() };
        let key = || Known { has_key: true, ..Known::default() };
        let exec = || Known { agent: Some("exec".to_owned()), has_program: true, ..server() };
        let openai = json!({"name": "openai"});
        let table = [
            (&["hi"][..], server(), openai.clone(), "OPENAI_BASE_URL"),
            (&["hi"], key(), openai.clone(), "OPENAI_API_KEY"),
            (&["hi", "--", "cat"], key(), json!({"name": "exec", "argv": ["cat"]}), "after --"),
            (&["hi", "--script", "f"], key(), json!({"name": "scripted"}), "--script"),
            (&["hi", "--model", "m"], nothing(), json!({"name": "openai", "model": "m"}), "--model"),
            (
                &["hi", "--base-url", "http://h", "--model", "m"],
                exec(),
                json!({"name": "openai", "base_url": "http://h", "model": "m"}),
                "--base-url",
            ),
            (&["hi"], exec(), json!({"name": "exec"}), "config.yaml"),
            (&["--agent", "scripted", "hi"], key(), json!({"name": "scripted"}), ""),
            (&["--agent", "openai", "hi"], nothing(), openai, ""),
        ];
        for (words, known, agent, why) in table {
            let (found, said) = chosen(words, &known).expect("a plan");
            assert_eq!(found, agent, "{words:?}");
            assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{words:?}: {said}");
        }
        let own = Known { agent: Some("mine".to_owned()), ..Known::default() };
        assert!(chosen(&["hi"], &own).expect_err("unknown").contains("\"mine\""));
    }

    #[test]
    fn a_named_agent_is_not_explained() {
        assert_eq!(planned(&["--agent", "scripted", "hi"], true).expect("a plan").chosen, None);
        assert_eq!(planned(&["--agent", "exec", "hi", "--", "cat"], true).expect("a plan").chosen, None);
    }

    #[test]
    fn the_prompt_is_the_word_else_a_piped_stdin_else_empty_for_a_program() {
        let prompt = |words: &[&str], terminal| planned(words, terminal).map(|plan| plan.prompt);
        assert_eq!(prompt(&["hi"], false), Ok(Prompt::Given("hi".into())));
        assert_eq!(prompt(&[""], true), Ok(Prompt::Given("".into())));
        assert_eq!(prompt(&["-"], true), Ok(Prompt::Stdin));
        assert_eq!(prompt(&["-", "--", "cat"], false), Ok(Prompt::Stdin));
        assert_eq!(prompt(&[], false), Ok(Prompt::Stdin));
        assert_eq!(prompt(&["--", "cat"], false), Ok(Prompt::Stdin));
        assert_eq!(prompt(&["--", "cat"], true), Ok(Prompt::Empty));
        assert!(prompt(&[], true).expect_err("no prompt").contains("no prompt"));
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        for words in [
            &["--agent", "exec", "hi"][..],
            &["--agent", "scripted", "hi", "--", "cat"],
            &["--agent", "exec", "--script", "f", "hi", "--", "cat"],
            &["--script", "f", "hi", "--", "cat"],
            &["--agent", "openai", "hi", "--", "cat"],
            &["--agent", "openai", "--script", "f", "hi"],
            &["--agent", "scripted", "--model", "m", "hi"],
            &["--base-url", "http://h", "hi", "--", "cat"],
        ] {
            assert!(planned(words, true).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_script_is_a_list_or_one_step_a_line() {
        let step = |text: &str| RawJson::parse(text).expect("json");
        let wanted = vec![step(r#"{"delta":"a"}"#), step(r#"{"exit":3}"#)];
        assert_eq!(steps(r#" [{"delta":"a"}, {"exit":3}]"#), Ok(wanted.clone()));
        assert_eq!(steps("# two\n{\"delta\":\"a\"}\n\n  {\"exit\":3}\n"), Ok(wanted));
        assert_eq!(steps(""), Ok(vec![]));
        assert!(steps("{\"exit\":3}\n{").expect_err("cut").contains("step 2"));
        assert!(steps("[1]").is_err());
        assert!(steps(r#"[{"dance":1}]"#).expect_err("unknown").contains("dance"));
    }
}
