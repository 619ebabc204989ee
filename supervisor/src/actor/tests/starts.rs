//! Starts that fail, and the registry that is taken before one.

use super::*;
use pretty_assertions::assert_eq;

#[tokio::test(start_paused = true)]
async fn a_start_without_hello_says_what_came_instead() {
    for (output, words) in [
        ("", "0 bytes on stdout"),
        ("{\"type\":\"hello\"", "15 bytes on stdout, no line end"),
        ("banner\n", "1 lines, none of them a hello (the last: banner)"),
    ] {
        rig(config(), |mut rig| async move {
            use tokio::io::AsyncWriteExt as _;
            let starting = spawn_local({
                let supervisor = rig.supervisor.clone();
                async move { supervisor.start().await }
            });
            let mut host = rig.host().await;
            host.raw(output).await;
            host.stderr.write_all(b"cannot import x").await.unwrap();
            assert_eq!(host.die_when_told().await, Fate::Kill);
            let error = starting.await.unwrap().unwrap_err();
            assert_eq!(error.kind, ErrorKind::NoHello);
            assert!(
                error.message.contains(words) && error.message.contains("cannot import x"),
                "{}",
                error.message
            );
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exit_before_hello_is_told_at_once_with_the_stderr() {
    rig(Config { hello_timeout: Duration::from_secs(60), ..config() }, |mut rig| async move {
        use tokio::io::AsyncWriteExt as _;
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let mut host = rig.host().await;
        host.stderr.write_all(b"no module named x\n").await.unwrap();
        let began = tokio::time::Instant::now();
        host.die(Exit::Code(1)).await;
        let error = starting.await.unwrap().unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(error.kind, ErrorKind::ExitedBeforeHello);
        assert!(
            error.message.contains('1') && error.message.contains("no module named x"),
            "{}",
            error.message
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_killed_before_the_error_comes_and_is_not_tried_again() {
    rig(Config { expected_build_sha: Some("other".to_owned()), ..config() }, |mut rig| async move {
        let starting = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.start().await }
        });
        let waiting = rig.supervisor.submit_turn(turn("s", "r")).await.unwrap();
        let mut host = rig.host().await;
        host.hello("b").await;
        assert_eq!(host.die_when_told().await, Fate::Kill);
        let error = starting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::BuildMismatch);
        assert!(error.message.contains("other") && error.message.contains("good"), "{}", error.message);
        let error = error_of(waiting).await;
        assert_eq!((&error["reason"], &error["turn_started"]), (&json!("unavailable"), &json!(false)));
        assert!(error["message"].as_str().unwrap().contains("build_mismatch"));
        assert_eq!(rig.supervisor.watch().current().state, HostState::Stopped);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spawn_that_cannot_work_answers_its_kind() {
    rig(config(), |rig| async move {
        let fault = StartFault::new(ErrorKind::SpawnFailed, "ENOENT".to_owned());
        rig.plans.lock().unwrap().push_back(Plan::Fail { permanent: true, fault });
        let error = rig.supervisor.start().await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::SpawnFailed, "ENOENT"));
        assert_eq!(rig.supervisor.watch().current().state, HostState::Stopped);
    })
    .await;
}

// On the real clock: the registry is looked at on a thread that the paused one would not wait for.
fn registry_config(wanted: impl FnOnce(std::path::PathBuf) -> Registry, folder: &std::path::Path) -> Config {
    Config { registry: wanted(folder.join("turnhost/host.json")), ..config() }
}

#[tokio::test]
async fn a_host_is_registered_from_hello_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnhost/host.json");
    rig(registry_config(Registry::Required, folder.path()), |mut rig| async move {
        let mut host = rig.started().await;
        let ready = rig.supervisor.start().await.unwrap();
        assert_eq!(ready.reconciled.as_deref(), Some("none"));
        let entry: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!((&entry["host_pid"], &entry["boot_id"]), (&json!(1001), &json!("boot-1")));
        let status = rig.supervisor.status().await.unwrap();
        assert_eq!(status.registry, Some(file.display().to_string()));
        let stopping = spawn_local({
            let supervisor = rig.supervisor.clone();
            async move { supervisor.shutdown(StopOptions::default()).await }
        });
        host.expect("shutdown").await;
        host.die(Exit::Code(0)).await;
        stopping.await.unwrap().unwrap();
        assert!(!file.exists());
    })
    .await;
}

#[tokio::test]
async fn a_registry_that_cannot_be_had_is_an_error_before_anything_is_spawned_or_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_owned();
    rig(registry_config(Registry::Required, &folder), |mut owner| async move {
        let _host = owner.started().await;
        rig(registry_config(Registry::Required, &folder), |mut other| async move {
            let error = other.supervisor.start().await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RegistryOwned);
            assert!(other.hosts.try_recv().is_err(), "nothing was spawned");
            assert_eq!(other.supervisor.watch().current().state, HostState::Stopped);
        })
        .await;
        rig(registry_config(Registry::Optional, &folder), |mut other| async move {
            let _host = other.started().await;
            let ready = other.supervisor.start().await.unwrap();
            assert_eq!(ready.reconciled, None);
            assert_eq!(other.supervisor.status().await.unwrap().registry, None);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_registry_is_tried_again_when_it_could_not_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_owned();
    LocalSet::new()
        .run_until(async {
            let mut owner = Rig::new(registry_config(Registry::Required, &folder));
            let _host = owner.started().await;
            let mut other = Rig::new(registry_config(Registry::Required, &folder));
            assert_eq!(other.supervisor.start().await.unwrap_err().kind, ErrorKind::RegistryOwned);
            drop(owner.supervisor);
            owner.actor.await.unwrap();
            other.started().await;
        })
        .await;
}
