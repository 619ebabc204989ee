//! What a command line of `run` means: pure, but for reading the files that it names.

use crate::run::{AgentName, Args};
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

/// Decides which agent runs and where its prompt comes from.
///
/// # Errors
/// What is wrong with the command line and what to write instead.
pub(super) fn plan(args: &Args, stdin_is_terminal: bool) -> Result<Plan, String> {
    let has_program = !args.program.is_empty();
    let (name, chosen) = match args.agent {
        Some(name) => (name, None),
        None if has_program => (AgentName::Exec, Some("a program was given after --")),
        None if args.script.is_some() => (AgentName::Scripted, Some("--script was given")),
        None => (
            AgentName::Scripted,
            Some("none was named, and no program was given after --; it only echoes the prompt, for a try"),
        ),
    };
    let agent = match name {
        AgentName::Scripted if has_program => {
            return Err("--agent scripted runs no program: drop it, or what stands after --".to_owned());
        }
        AgentName::Scripted => json!({"name": "scripted"}),
        AgentName::Exec if args.script.is_some() => {
            return Err("--script is for the scripted agent: drop it, or use --agent scripted".to_owned());
        }
        AgentName::Exec if !has_program => {
            return Err("--agent exec needs a program: turnhost run --agent exec [PROMPT] -- PROGRAM ARGS…"
                .to_owned());
        }
        AgentName::Exec => {
            let argv = args.program.iter().map(|word| {
                word.to_str().ok_or_else(|| format!("{word:?} is no UTF-8, which a frame cannot carry"))
            });
            json!({"name": "exec", "argv": argv.collect::<Result<Vec<_>, _>>()?})
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
        plan(&line.args, stdin_is_terminal)
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
