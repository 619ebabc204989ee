//! What an `event` frame can tell.

use serde::{Deserialize, Serialize};

/// The fields of an `event` frame, by kind. Shaped after the session updates of the Agent Client Protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "kind")]
pub enum EventBody {
    /// Reasoning that is no answer.
    #[serde(rename = "thought")]
    Thought {
        /// The text.
        text: String,
    },
    /// A tool is called.
    #[serde(rename = "tool_call")]
    ToolCall {
        /// Names the call.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// For people.
        title: String,
        /// Arguments.
        args: serde_json::Value,
        /// `running`, `completed` or `failed`.
        status: ToolStatus,
    },
    /// News of a call.
    #[serde(rename = "tool_call_update")]
    ToolCallUpdate {
        /// The call.
        tool_call_id: String,
        /// `running`, `completed` or `failed`.
        status: ToolStatus,
        /// What it gave.
        content: serde_json::Value,
        /// Exit code of a program, null if none.
        exit_code: Option<i64>,
    },
    /// The agent's plan.
    #[serde(rename = "plan")]
    Plan {
        /// Its entries.
        entries: Vec<serde_json::Value>,
    },
    /// Tokens.
    #[serde(rename = "usage")]
    Usage {
        /// In.
        input: u64,
        /// Out.
        output: u64,
        /// Both.
        total: u64,
        /// Calls of the model.
        calls: u64,
    },
    /// A question to a person, answered by `respond`.
    #[serde(rename = "approval_request")]
    ApprovalRequest {
        /// Names the question.
        approval_id: String,
        /// What would be run.
        command: String,
        /// Why it is asked.
        description: String,
        /// The answers allowed.
        choices: Vec<String>,
        /// Whether "always" may be chosen.
        allow_permanent: bool,
        /// Milliseconds until it is denied.
        timeout_ms: u64,
    },
    /// A question is settled.
    #[serde(rename = "approval_resolved")]
    ApprovalResolved {
        /// The question.
        approval_id: String,
        /// The choice that holds.
        choice: String,
    },
    /// A line for people.
    #[serde(rename = "status")]
    Status {
        /// The text.
        text: String,
    },
    /// The turn will be silent for this long, on purpose.
    #[serde(rename = "busy_until")]
    BusyUntil {
        /// Milliseconds from now.
        ms: u64,
    },
}

/// How a tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// Not over.
    Running,
    /// Over and right.
    Completed,
    /// Over and wrong.
    Failed,
}
