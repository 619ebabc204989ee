//! What `config check` says: pure.

use crate::table::{Colour, coloured};
use serde_json::{Value, json};
use turnhost_host::config::{ConfigFile, Problem, Remark, RemarkKind, Settings};

/// Everything that was found.
#[derive(Debug)]
pub(super) struct Report {
    /// Those of the file, and those that only this program can see.
    problems: Vec<Problem>,
    mistyped: Vec<Remark>,
    ignored: Vec<Remark>,
    foreign: Vec<Remark>,
    variables: Vec<String>,
}

impl Report {
    /// Looks at the file, and at what its values mean here.
    pub(super) fn new(file: &ConfigFile, settings: &Settings) -> Self {
        let mut report = Self {
            problems: file.problems.clone(),
            mistyped: Vec::new(),
            ignored: Vec::new(),
            foreign: Vec::new(),
            variables: settings.ignored.clone(),
        };
        report.problems.extend(meanings(file));
        report.problems.sort_by_key(|problem| problem.line);
        for remark in &file.remarks {
            match &remark.kind {
                RemarkKind::Mistyped { .. } => report.mistyped.push(remark.clone()),
                RemarkKind::Ignored { .. } => report.ignored.push(remark.clone()),
                RemarkKind::Foreign => report.foreign.push(remark.clone()),
            }
        }
        report
    }

    /// True if there is nothing to correct.
    pub(super) fn is_fine(&self) -> bool {
        self.mistakes() == 0
    }

    fn mistakes(&self) -> usize {
        self.problems.len() + self.mistyped.len()
    }

    /// Lines for people.
    pub(super) fn text(&self, file: &ConfigFile, verbose: bool, colour: bool) -> String {
        let path = &file.path;
        let mistakes = self.problems.iter().map(|problem| (problem.line.unwrap_or(0), problem.to_line(path)));
        let mut mistakes: Vec<_> =
            mistakes.chain(self.mistyped.iter().map(|remark| (remark.line, remark.to_line(path)))).collect();
        mistakes.sort_by_key(|(line, _)| *line);
        let foreign = if verbose { self.foreign.as_slice() } else { &[] };
        let notes = self.ignored.iter().chain(foreign).map(|remark| remark.to_line(path));
        let mut lines: Vec<String> =
            mistakes.into_iter().map(|(_, line)| coloured(&line, Colour::Red, colour)).collect();
        lines.extend(notes.chain(self.variables.iter().cloned()));
        lines.push(match self.mistakes() {
            0 if !file.found => {
                format!("{} does not exist: flags, environment and defaults hold", path.display())
            }
            0 => coloured(&format!("{} is fine", path.display()), Colour::Green, colour),
            1 => "1 mistake".to_owned(),
            count => format!("{count} mistakes"),
        });
        lines.join("\n") + "\n"
    }

    /// The same as one object.
    pub(super) fn json(&self, file: &ConfigFile) -> Value {
        let mistyped = |remark: &Remark| {
            let RemarkKind::Mistyped { nearest } = &remark.kind else { return Value::Null };
            json!({"line": remark.line, "key": remark.key, "nearest": nearest})
        };
        let ignored = |remark: &Remark| {
            let RemarkKind::Ignored { why } = &remark.kind else { return Value::Null };
            json!({"line": remark.line, "key": remark.key, "why": why})
        };
        let foreign = |remark: &Remark| json!({"line": remark.line, "key": remark.key});
        let problem =
            |problem: &Problem| json!({"line": problem.line, "key": problem.key, "message": problem.message});
        json!({
            "file": file.path.to_string_lossy(),
            "found": file.found,
            "fine": self.is_fine(),
            "problems": self.problems.iter().map(problem).collect::<Vec<_>>(),
            "mistyped": self.mistyped.iter().map(mistyped).collect::<Vec<_>>(),
            "ignored": self.ignored.iter().map(ignored).collect::<Vec<_>>(),
            "foreign": self.foreign.iter().map(foreign).collect::<Vec<_>>(),
            "variables": self.variables,
        })
    }
}

/// Values that have their type and mean nothing.
fn meanings(file: &ConfigFile) -> Vec<Problem> {
    let problem =
        |key: &str, message: String| Problem { line: file.line(key), key: Some(key.to_owned()), message };
    let mut problems = Vec::new();
    if let Some(name) = &file.config.agent.name {
        let agents = turnhost_host::agent::builtin(None, &file.config);
        if agents.find(name).is_none() {
            let known: Vec<&str> = agents.names().collect();
            let message = format!("no agent of this program, which has {}", known.join(", "));
            problems.push(problem("agent.name", message));
        }
    }
    if let Some(base_url) = &file.config.model.base_url {
        let has_scheme = ["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme));
        if !has_scheme {
            let message = "expected http:// or https:// at its beginning".to_owned();
            problems.push(problem("model.base_url", message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use std::path::Path;
    use turnhost_host::HostArgs;

    fn report(text: &str) -> (Report, ConfigFile) {
        let file = ConfigFile::parse(Path::new("/h/config.yaml"), text.as_bytes());
        let settings = Settings::resolve(&HostArgs::default(), |_| None, &file);
        (Report::new(&file, &settings), file)
    }

    #[test]
    fn mistakes_come_by_their_lines_and_are_counted() {
        let (report, file) =
            report("agent:\n  nmae: x\n  exec: {timeout: 1}\nmodel: {name: 5}\nterminal: {}\n");
        assert!(!report.is_fine());
        let wanted = "\
/h/config.yaml:2: agent.nmae: no such key; did you mean agent.name?
/h/config.yaml:4: model.name: expected text (put it in quotes), found a number
/h/config.yaml:3: agent.exec.timeout: not used: of agent.exec only argv is
2 mistakes
";
        assert_eq!(report.text(&file, false, false), wanted);
        let verbose = report.text(&file, true, false);
        assert!(verbose.contains("/h/config.yaml:5: terminal: another program's; left alone\n"), "{verbose}");
        assert!(report.text(&file, false, true).starts_with("\u{1b}[31m/h/config.yaml:2"));
        let json = report.json(&file);
        assert_eq!(json["fine"], false);
        assert_eq!(json["mistyped"], json!([{"line": 2, "key": "agent.nmae", "nearest": "agent.name"}]));
        assert_eq!(json["problems"][0]["line"], 4);
        assert_eq!(json["ignored"][0]["key"], "agent.exec.timeout");
        assert_eq!(json["foreign"], json!([{"line": 5, "key": "terminal"}]));
    }

    #[test]
    fn a_fine_file_and_none_are_told_apart() {
        let (fine, file) = report("model: {base_url: 'https://one/v1'}\nagent: {name: exec}\n");
        assert!(fine.is_fine());
        assert_eq!(fine.text(&file, false, false), "/h/config.yaml is fine\n");
        let none = ConfigFile::examine(Path::new("/nowhere/at/all"));
        let settings = Settings::resolve(&HostArgs::default(), |_| None, &none);
        let report = Report::new(&none, &settings);
        assert!(report.is_fine());
        assert!(report.text(&none, false, false).starts_with("/nowhere/at/all/config.yaml does not exist: "));
        assert_eq!(report.json(&none)["found"], false);
    }

    #[test]
    fn an_agent_that_nobody_has_and_a_url_without_a_scheme_are_mistakes() {
        let (report, file) = report("model:\n  base_url: 127.0.0.1:8080/v1\nagent:\n  name: nobody\n");
        let text = report.text(&file, false, false);
        assert!(text.contains(":2: model.base_url: expected http:// or https://"), "{text}");
        assert!(text.contains(":4: agent.name: no agent of this program, which has exec, "), "{text}");
        assert!(text.ends_with("2 mistakes\n"), "{text}");
    }
}
