//! The three standard streams and the signals.

pub(crate) mod lanes;
pub(crate) mod outbox;
pub(crate) mod signals;
pub(crate) mod stderr;
pub(crate) mod stdin;
pub(crate) mod stdout;
