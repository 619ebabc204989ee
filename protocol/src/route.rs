//! The mutator route table: the only place where the class of a control is decided.

/// A control that a front end may ask a host for. The wire names are [`Route::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// `prompt.submit`: a turn; sent as `turn.start`, never inside `control`.
    PromptSubmit,
    /// `session.interrupt`: sent as `interrupt`, never inside `control`.
    SessionInterrupt,
    /// `reload.mcp`.
    ReloadMcp,
    /// `session.save`.
    SessionSave,
    /// `session.compress`.
    SessionCompress,
    /// `prompt.submit.truncate`.
    PromptSubmitTruncate,
    /// `slash.model`.
    SlashModel,
    /// `slash.personality`.
    SlashPersonality,
    /// `slash.prompt`.
    SlashPrompt,
    /// `slash.compress`.
    SlashCompress,
    /// `session.reset`.
    SessionReset,
    /// `session.history.reload`.
    SessionHistoryReload,
    /// `slash.retry`.
    SlashRetry,
}

/// What a route may overlap with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteClass {
    /// Goes by the turn's own frames.
    TurnPath,
    /// May run beside a turn of the same session.
    RunConcurrent,
    /// Needs the session idle, and keeps turns out while it runs.
    IdleGated,
}

impl Route {
    /// Every route, in the order of the table in `docs/protocol.md`.
    pub const ALL: [Route; 13] = [
        Route::PromptSubmit,
        Route::SessionInterrupt,
        Route::ReloadMcp,
        Route::SessionSave,
        Route::SessionCompress,
        Route::PromptSubmitTruncate,
        Route::SlashModel,
        Route::SlashPersonality,
        Route::SlashPrompt,
        Route::SlashCompress,
        Route::SessionReset,
        Route::SessionHistoryReload,
        Route::SlashRetry,
    ];

    /// The name on the wire (`route_name`).
    pub const fn name(self) -> &'static str {
        match self {
            Route::PromptSubmit => "prompt.submit",
            Route::SessionInterrupt => "session.interrupt",
            Route::ReloadMcp => "reload.mcp",
            Route::SessionSave => "session.save",
            Route::SessionCompress => "session.compress",
            Route::PromptSubmitTruncate => "prompt.submit.truncate",
            Route::SlashModel => "slash.model",
            Route::SlashPersonality => "slash.personality",
            Route::SlashPrompt => "slash.prompt",
            Route::SlashCompress => "slash.compress",
            Route::SessionReset => "session.reset",
            Route::SessionHistoryReload => "session.history.reload",
            Route::SlashRetry => "slash.retry",
        }
    }

    /// The class of the route.
    pub const fn class(self) -> RouteClass {
        match self {
            Route::PromptSubmit | Route::SessionInterrupt => RouteClass::TurnPath,
            Route::ReloadMcp | Route::SessionSave => RouteClass::RunConcurrent,
            Route::SessionCompress
            | Route::PromptSubmitTruncate
            | Route::SlashModel
            | Route::SlashPersonality
            | Route::SlashPrompt
            | Route::SlashCompress
            | Route::SessionReset
            | Route::SessionHistoryReload
            | Route::SlashRetry => RouteClass::IdleGated,
        }
    }

    /// The route with this wire name, or `None` for an unclassified one.
    pub fn from_name(name: &str) -> Option<Route> {
        Route::ALL.into_iter().find(|route| route.name() == name)
    }
}

impl RouteClass {
    /// The name of the class as the tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            RouteClass::TurnPath => "turn-path",
            RouteClass::RunConcurrent => "run-concurrent",
            RouteClass::IdleGated => "idle-gated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_table_is_exactly_the_documented_one() {
        let expected = [
            ("prompt.submit", "turn-path"),
            ("session.interrupt", "turn-path"),
            ("reload.mcp", "run-concurrent"),
            ("session.save", "run-concurrent"),
            ("session.compress", "idle-gated"),
            ("prompt.submit.truncate", "idle-gated"),
            ("slash.model", "idle-gated"),
            ("slash.personality", "idle-gated"),
            ("slash.prompt", "idle-gated"),
            ("slash.compress", "idle-gated"),
            ("session.reset", "idle-gated"),
            ("session.history.reload", "idle-gated"),
            ("slash.retry", "idle-gated"),
        ];
        assert_eq!(Route::ALL.map(|route| (route.name(), route.class().name())), expected);
    }

    #[test]
    fn a_name_is_found_only_if_it_is_written_exactly() {
        for route in Route::ALL {
            assert_eq!(Route::from_name(route.name()), Some(route));
        }
        for unclassified in ["", "session.delete", "Session.Save", "session.save ", "slash.compact"] {
            assert_eq!(Route::from_name(unclassified), None, "{unclassified:?}");
        }
    }
}
