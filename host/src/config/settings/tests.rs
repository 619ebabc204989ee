use super::*;
use crate::config::ConfigFile;
use pretty_assertions::assert_eq;
use std::path::Path;

const FILE: &str = "\
model: {name: file-model, base_url: http://file, provider: file-provider}
agent:
  name: exec
  system_prompt: Be brief.
  exec: {argv: [cat]}
  scripted: {delta_count: 3, delay_s: 0.5}
personalities:
  pirate: Arr.
";

fn resolved(args: HostArgs, variables: &[(&str, &str)], file: &str) -> Settings {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let file = ConfigFile::parse(Path::new("/h/config.yaml"), file.as_bytes());
    assert_eq!(file.problems, []);
    Settings::resolve(&args, variable, &file)
}

fn said<T: Clone>(resolved: Option<Resolved<T>>) -> Option<(T, String)> {
    resolved.map(|resolved| (resolved.value, resolved.source.to_string()))
}

fn pair(value: &str, source: &str) -> Option<(String, String)> {
    Some((value.to_owned(), source.to_owned()))
}

#[test]
fn flags_count_before_the_environment_and_the_environment_before_the_file() {
    let flags = || HostArgs {
        base_url: Some("http://flag".to_owned()),
        model: Some("flag-model".to_owned()),
        agent: Some("scripted".to_owned()),
        ..HostArgs::default()
    };
    let environment = [("OPENAI_BASE_URL", "http://variable")];
    let base_url = |args, variables: &[_], file| said(resolved(args, variables, file).base_url);
    assert_eq!(base_url(flags(), &environment, FILE), pair("http://flag", "--base-url"));
    assert_eq!(base_url(HostArgs::default(), &environment, FILE), pair("http://variable", "OPENAI_BASE_URL"));
    assert_eq!(base_url(HostArgs::default(), &[], FILE), pair("http://file", "/h/config.yaml:1"));
    assert_eq!(
        base_url(HostArgs::default(), &[("OPENAI_BASE_URL", "")], FILE),
        pair("http://file", "/h/config.yaml:1"),
        "an empty variable counts as unset"
    );
    assert_eq!(base_url(HostArgs::default(), &[], ""), None);

    let all = resolved(flags(), &environment, FILE);
    assert_eq!(said(all.model), pair("flag-model", "--model"));
    assert_eq!(said(Some(all.agent)), pair("scripted", "--agent"));
    let all = resolved(HostArgs::default(), &environment, FILE);
    assert_eq!(said(all.model), pair("file-model", "/h/config.yaml:1"));
    assert_eq!(said(Some(all.agent)), pair("exec", "/h/config.yaml:3"));
    assert_eq!(said(all.provider), pair("file-provider", "/h/config.yaml:1"));
    assert_eq!(said(all.system_prompt), pair("Be brief.", "/h/config.yaml:4"));
    assert_eq!(said(all.exec_argv), Some((vec!["cat".to_owned()], "/h/config.yaml:5".to_owned())));
    assert_eq!(said(Some(all.delta_count)), Some((3, "/h/config.yaml:6".to_owned())));
    assert_eq!(said(Some(all.delay)), Some((Duration::from_millis(500), "/h/config.yaml:6".to_owned())));
    let [(name, pirate)] = all.personalities.as_slice() else { panic!("one personality") };
    assert_eq!((name.as_str(), said(Some(pirate.clone()))), ("pirate", pair("Arr.", "/h/config.yaml:8")));
}

#[test]
fn nobody_named_an_agent_so_it_follows_from_the_server_or_the_key() {
    let agent = |variables: &[_], file| said(Some(resolved(HostArgs::default(), variables, file).agent));
    assert_eq!(agent(&[], ""), pair("scripted", "default"));
    assert_eq!(agent(&[("OPENAI_API_KEY", "k")], ""), pair("openai", "because OPENAI_API_KEY is set"));
    assert_eq!(agent(&[("OPENAI_API_KEY", "")], ""), pair("scripted", "default"));
    assert_eq!(agent(&[("OPENAI_BASE_URL", "x")], ""), pair("openai", "because a base URL is set"));
    assert_eq!(agent(&[], "model: {base_url: x}"), pair("openai", "because a base URL is set"));
    let args = HostArgs { base_url: Some("x".to_owned()), ..HostArgs::default() };
    assert_eq!(resolved(args, &[], "").agent.value, "openai");
    assert_eq!(agent(&[("OPENAI_API_KEY", "k")], "agent: {name: exec}").unwrap().0, "exec");
}

#[test]
fn the_key_itself_is_nowhere_in_the_settings() {
    let settings = resolved(HostArgs::default(), &[("OPENAI_API_KEY", "sk-secret")], "");
    assert_eq!(settings.api_key, Some(Source::Variable("OPENAI_API_KEY")));
    assert!(!format!("{settings:?}").contains("sk-secret"));
    assert_eq!(resolved(HostArgs::default(), &[("OPENAI_API_KEY", "")], "").api_key, None);
}

#[test]
fn without_anything_the_defaults_hold_and_say_so() {
    let settings = resolved(HostArgs::default(), &[], "");
    assert_eq!((settings.delta_count.value, settings.delay.value), (24, Duration::from_millis(1)));
    let sources = [
        settings.agent.source,
        settings.delta_count.source,
        settings.delay.source,
        settings.workers.source,
        settings.heartbeat.source,
        settings.drain.source,
        settings.max_frame_bytes.source,
        settings.rpc_events.source,
    ];
    assert_eq!(sources, std::array::from_fn(|_| Source::Default));
    assert_eq!(settings.ignored, Vec::<String>::new());
}

#[test]
fn figures_of_the_host_say_who_gave_them_and_a_variable_that_is_no_figure_is_named() {
    let variables = [
        ("HERMES_TUI_RPC_POOL_WORKERS", "3"),
        ("HERMES_COMPUTE_HOST_HEARTBEAT_SECS", "2"),
        ("HERMES_COMPUTE_HOST_MAX_FRAME_BYTES", "100000"),
    ];
    let settings = resolved(HostArgs::default(), &variables, "");
    assert_eq!(said(Some(settings.workers)).unwrap(), (3, variables[0].0.to_owned()));
    let heartbeat = (Some(Duration::from_secs(2)), variables[1].0.to_owned());
    assert_eq!(said(Some(settings.heartbeat)).unwrap(), heartbeat);
    assert_eq!(said(Some(settings.max_frame_bytes)).unwrap(), (100_000, variables[2].0.to_owned()));
    assert_eq!(settings.ignored, Vec::<String>::new());

    let args = HostArgs {
        workers: Some(1),
        heartbeat_secs: Some(Duration::ZERO),
        drain_secs: Some(Duration::from_secs(4)),
        rpc_events: true,
        ..HostArgs::default()
    };
    let settings = resolved(args, &variables, "");
    assert_eq!(said(Some(settings.workers)).unwrap(), (1, "--workers".to_owned()));
    assert_eq!(said(Some(settings.heartbeat)).unwrap(), (None, "--heartbeat-secs".to_owned()));
    assert_eq!(said(Some(settings.drain)).unwrap(), (Duration::from_secs(4), "--drain-secs".to_owned()));
    assert_eq!(said(Some(settings.rpc_events)).unwrap(), (true, "--rpc-events".to_owned()));

    let malformed = variables.map(|(name, _)| (name, "soon"));
    let settings = resolved(HostArgs::default(), &malformed, "");
    for ((name, _), line) in variables.iter().zip(&settings.ignored) {
        assert!(line.starts_with(name) && line.ends_with("is used"), "{line}");
    }
    assert_eq!(settings.ignored.len(), 3);
    assert_eq!((settings.workers.value, settings.workers.source), (8, Source::Default));
}
