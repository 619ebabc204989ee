use super::super::yaml;
use super::*;
use pretty_assertions::assert_eq;

fn reading(text: &str) -> Reading {
    read(yaml::parse(text).expect("YAML").as_ref())
}

fn problems(text: &str) -> Vec<(usize, String, String)> {
    let problems = reading(text).problems.into_iter();
    problems.map(|p| (p.line.unwrap_or(0), p.key.unwrap_or_default(), p.message)).collect()
}

/// What an unknown key was meant to be.
fn meant(text: &str) -> Option<String> {
    let found = reading(text);
    assert_eq!(found.problems, [], "{text}");
    found.remarks.into_iter().find_map(|remark| match remark.kind {
        RemarkKind::Mistyped { nearest } => Some(format!("{}:{} {nearest}", remark.line, remark.key)),
        RemarkKind::Ignored { .. } | RemarkKind::Foreign => None,
    })
}

#[test]
fn every_key_reaches_the_config_with_its_line() {
    let found = reading(
        "model:\n  provider: local\n  name: big\n  base_url: http://127.0.0.1:1/v1\nagent:\n  name: exec\n  \
         system_prompt: |\n    Be brief.\n    Be kind.\n  exec:\n    argv: [cat, \"-n\"]\n  scripted:\n    \
         delta_count: 3\n    delay_s: 0.25\npersonalities:\n  pirate: Arr.\n  calm: {system_prompt: Slow.}\n",
    );
    assert_eq!(found.problems, []);
    assert_eq!(found.remarks, []);
    let config = found.config;
    assert_eq!(config.model.provider.as_deref(), Some("local"));
    assert_eq!(config.model.name.as_deref(), Some("big"));
    assert_eq!(config.model.base_url.as_deref(), Some("http://127.0.0.1:1/v1"));
    assert_eq!(config.agent.name.as_deref(), Some("exec"));
    assert_eq!(config.agent.system_prompt.as_deref(), Some("Be brief.\nBe kind.\n"));
    assert_eq!(config.agent.exec_argv, ["cat", "-n"]);
    assert_eq!(config.agent.scripted_delta_count, Some(3));
    assert_eq!(config.agent.scripted_delay, Some(Duration::from_millis(250)));
    let wanted = [("calm", "Slow."), ("pirate", "Arr.")];
    assert_eq!(config.personalities, wanted.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    let line = |key: &str| found.lines.get(key).copied();
    let lines =
        ["model.provider", "model.name", "agent.exec.argv", "agent.scripted.delay_s", "personalities.pirate"];
    assert_eq!(lines.map(line), [Some(2), Some(3), Some(11), Some(14), Some(16)]);
    for key in KEYS.iter().filter(|key| **key != "personalities") {
        assert!(line(key).is_some(), "{key}");
    }
}

#[test]
fn what_is_empty_says_nothing() {
    for text in [
        "",
        "~",
        "model:\nagent:\npersonalities:\n",
        "model: {name: , provider: '', base_url: ''}\nagent: {system_prompt: \"\", exec: , scripted: {delta_count: }}\n",
        "agent: {exec: {argv: }}\npersonalities: {a: , b: ''}\n",
    ] {
        let found = reading(text);
        assert_eq!((found.config, found.problems, found.remarks), Default::default(), "{text:?}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_line_and_key_and_never_shown() {
    let table = [
        ("model: [a]", 1, "model", "expected a section with provider, name, base_url, found a list"),
        ("x: 1\nmodel:\n  name: 5", 3, "model.name", "expected text (put it in quotes), found a number"),
        ("model:\n  base_url:\n    host: secret", 3, "model.base_url", "expected text, found a section"),
        (
            "agent: secret",
            1,
            "agent",
            "expected a section with name, system_prompt, exec, scripted, found text",
        ),
        ("agent: {name: true}", 1, "agent.name", "expected text (put it in quotes), found true or false"),
        (
            "agent: {exec: {argv: secret}}",
            1,
            "agent.exec.argv",
            "expected a list, as [program, argument], found text",
        ),
        (
            "agent:\n  exec:\n    argv:\n      - head\n      - 5\n",
            5,
            "agent.exec.argv[1]",
            "expected text (put it in quotes), found a number",
        ),
        ("agent: {exec: {argv: ['']}}", 1, "agent.exec.argv[0]", "names no program"),
        (
            "agent: {exec: {argv: [a, \"b\\0\"]}}",
            1,
            "agent.exec.argv[1]",
            "holds a NUL, which no argument can",
        ),
        ("agent: {exec: [a]}", 1, "agent.exec", "expected a section with argv, found a list"),
        (
            "agent: {scripted: {delta_count: -1}}",
            1,
            "agent.scripted.delta_count",
            "expected a whole number from 0, found a number",
        ),
        (
            "agent: {scripted: {delta_count: 2.5}}",
            1,
            "agent.scripted.delta_count",
            "expected a whole number from 0, found a number",
        ),
        (
            "agent: {scripted: {delta_count: 9223372036854775808}}",
            1,
            "agent.scripted.delta_count",
            "expected a whole number from 0, found a number",
        ),
        (
            "agent: {scripted: {delay_s: secret}}",
            1,
            "agent.scripted.delay_s",
            "expected a number of seconds from 0, as 0.5, found text",
        ),
        (
            "agent: {scripted: {delay_s: .nan}}",
            1,
            "agent.scripted.delay_s",
            "expected a number of seconds from 0, as 0.5, found a number",
        ),
        (
            "personalities: [a]",
            1,
            "personalities",
            "expected a section of names, each with its text, found a list",
        ),
        (
            "personalities: {a: 5}",
            1,
            "personalities.a",
            "expected text, or a section with system_prompt, found a number",
        ),
        ("personalities: {5: a}", 1, "personalities", "a name must be text; put it in quotes"),
        ("- secret", 1, "", "expected sections, as `model:`; found a list"),
        ("model:\n  name: a\n  name: b\n", 3, "model.name", "given twice, first in line 2; remove one"),
        ("agent: {}\nmodel: {}\nagent: {}\n", 3, "agent", "given twice, first in line 1; remove one"),
        (
            "personalities:\n  a: x\n  a: y\n",
            3,
            "personalities.a",
            "given twice, first in line 2; remove one",
        ),
    ];
    for (text, line, key, message) in table {
        assert_eq!(problems(text), [(line, key.to_owned(), message.to_owned())], "{text}");
    }
    assert_eq!(problems("agent: {name: 1}\nmodel: {name: 1}\n").len(), 2, "all are found, by their lines");
    assert_eq!(problems("agent: {name: 1}\nmodel: {name: 1}\n")[0].1, "agent.name");
}

#[test]
fn an_endless_pause_becomes_the_longest_that_can_be_reckoned_with() {
    for text in ["1e300", ".inf", "99999999999999999999"] {
        let found = reading(&format!("agent: {{scripted: {{delay_s: {text}}}}}"));
        assert_eq!(found.config.agent.scripted_delay, Some(LONGEST_DELAY), "{text} {:?}", found.problems);
    }
}

#[test]
fn the_shapes_of_hermes_agent_are_understood_where_they_mean_the_same() {
    let name = |text: &str| reading(text).config.model.name;
    assert_eq!(name("model: anthropic/big"), Some("anthropic/big".to_owned()));
    assert_eq!(name("model: {default: big, api_mode: chat}"), Some("big".to_owned()));
    assert_eq!(reading("model:\n  default: big\n").lines["model.name"], 2);
    assert_eq!(name("model: {default: big, name: small}"), Some("small".to_owned()));

    let found = reading(
        "agent:\n  max_turns: 5\n  personalities:\n    a: one\n    b: {system_prompt: two, tone: dry}\n    c: 5\n    d: {tone: dry}\n\
         personalities:\n  a: three\n",
    );
    assert_eq!(found.problems, []);
    let wanted = [("a", "three"), ("b", "two")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(found.config.personalities, wanted.into());
    assert_eq!((found.lines["personalities.a"], found.lines["personalities.b"]), (9, 5));
    let remarks: Vec<_> = found
        .remarks
        .iter()
        .map(|remark| (remark.line, remark.key.as_str(), matches!(remark.kind, RemarkKind::Foreign)))
        .collect();
    let wanted = [
        (2, "agent.max_turns", true),
        (4, "agent.personalities.a", false),
        (5, "agent.personalities.b.tone", false),
        (6, "agent.personalities.c", false),
        (7, "agent.personalities.d", false),
    ];
    assert_eq!(remarks, wanted);
}

#[test]
fn a_mistyped_key_is_named_with_the_nearest_right_one() {
    let table = [
        ("model:\n  base_ulr: x", "2:model.base_ulr model.base_url"),
        ("model: {baseUrl: x}", "1:model.baseUrl model.base_url"),
        ("model: {base-url: x}", "1:model.base-url model.base_url"),
        ("model: {Name: x}", "1:model.Name model.name"),
        ("model: {nmae: x}", "1:model.nmae model.name"),
        ("model: {providr: x}", "1:model.providr model.provider"),
        ("agent: {systemprompt: x}", "1:agent.systemprompt agent.system_prompt"),
        ("agent: {system_promt: x}", "1:agent.system_promt agent.system_prompt"),
        ("agent: {exce: {argv: [a]}}", "1:agent.exce agent.exec"),
        ("agent: {exec: {args: [a]}}", "1:agent.exec.args agent.exec.argv"),
        ("agent: {scriptd: {delay_s: 1}}", "1:agent.scriptd agent.scripted"),
        ("agent: {scripted: {delta_cuont: 1}}", "1:agent.scripted.delta_cuont agent.scripted.delta_count"),
        ("agent: {scripted: {delays: 1}}", "1:agent.scripted.delays agent.scripted.delay_s"),
        ("agent: {argv: [a]}", "1:agent.argv agent.exec.argv"),
        ("agent: {delay_s: 1}", "1:agent.delay_s agent.scripted.delay_s"),
        ("modle:\n  base_url: x", "1:modle model"),
        ("Model: {name: x}", "1:Model model"),
        ("agnet: {exec: {argv: [a]}}", "1:agnet agent"),
        ("personalites: {pirate: Arr}", "1:personalites personalities"),
        ("model.base_url: x", "1:model.base_url model.base_url (one level of indentation for each dot)"),
    ];
    for (text, wanted) in table {
        assert_eq!(meant(text).unwrap_or_default(), wanted, "{text}");
    }
}

#[test]
fn keys_of_other_programs_are_left_alone() {
    for text in [
        "models: {big: {context: 5}}",
        "models: [big]",
        "agents: {a: {b: c}}",
        "personality: pirate",
        "personality: {a: {b: c}}",
        "model: {api_mode: x, api_key: x, api: x, context_length: 5, max_tokens: 5, auth_mode: x, entra: {}, model: x}",
        "agent: {max_turns: 5, verbose: true, service_tier: x, reasoning_effort: x, prefill_messages_file: x}",
        "agent: {environment_hint: x, disabled_toolsets: [], gateway_timeout: 5, tool_use_enforcement: x}",
        "terminal: {backend: local}\ndisplay: {personality: pirate, compact: true}\nmcp: {}\nmoa: {}\n5: x\n? [a]\n: b\n",
        "mode: x",
        "toolsets: !custom [a]\nweb: !!binary aGk=\n",
    ] {
        let found = reading(text);
        assert_eq!((found.config, found.problems), Default::default(), "{text}");
        let foreign = |remark: &Remark| remark.kind == RemarkKind::Foreign;
        assert!(
            !found.remarks.is_empty() && found.remarks.iter().all(foreign),
            "{text}: {:?}",
            found.remarks
        );
    }
    let why = "of agent.exec only argv is";
    let kind = RemarkKind::Ignored { why };
    let remark = Remark { line: 1, key: "agent.exec.timeout".to_owned(), kind };
    assert_eq!(reading("agent: {exec: {timeout: 5}}").remarks, [remark]);
}

#[test]
fn the_guide_has_every_key_and_its_example_sets_each() {
    let guide = include_str!("../../../../docs/config.md");
    let example =
        guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let found = reading(example);
    assert_eq!((found.problems, found.remarks), Default::default());
    for key in KEYS {
        assert!(guide.lines().any(|line| line.starts_with(&format!("| `{key}` |"))), "{key} has no row");
        let is_set = |place: &String| place == key || place.starts_with(&format!("{key}."));
        assert!(found.lines.keys().any(is_set), "{key} is not in the example");
    }
}
