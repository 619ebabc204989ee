//! The HTTP clients, one for each way to a server, shared by all turns; and what their errors mean.

use super::request::{CONNECT_TIMEOUT, Server};
use reqwest::{Client, redirect, retry};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::error::Error as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// On this machine, without TLS: neither proxies nor certificates.
    Plain,
    /// On this machine, with TLS.
    Direct,
    /// Through the proxies of the environment.
    Remote,
}

/// Made when they are first needed: proxies and certificates are then read once, and connections are kept for later
/// turns.
#[derive(Debug, Default)]
pub(super) struct Clients {
    plain: OnceLock<Client>,
    direct: OnceLock<Client>,
    remote: OnceLock<Client>,
}

impl Clients {
    /// The client for this server. One with another connect timeout than usual is made for its turn alone.
    pub(super) fn get(&self, server: &Server, connect_timeout: Duration) -> Result<Client, String> {
        let is_tls = server.url.scheme() == "https";
        let (way, kept) = match (server.is_loopback(), is_tls) {
            (true, false) => (Way::Plain, &self.plain),
            (true, true) => (Way::Direct, &self.direct),
            (false, _) => (Way::Remote, &self.remote),
        };
        if connect_timeout != CONNECT_TIMEOUT {
            return build(way, is_tls, connect_timeout);
        }
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let client = build(way, is_tls, connect_timeout)?;
        // A client for http:// may have been made without certificates, which https:// cannot use.
        if way == Way::Remote && !is_tls {
            return Ok(client);
        }
        Ok(kept.get_or_init(|| client).clone())
    }
}

fn build(way: Way, is_tls: bool, connect_timeout: Duration) -> Result<Client, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = match way {
        Way::Plain => without_certificates(provider),
        Way::Direct | Way::Remote => with_certificates(Arc::clone(&provider)).or_else(|error| {
            // Only a proxy could need them now.
            if is_tls { Err(error) } else { without_certificates(provider) }
        }),
    };
    let tls = tls.map_err(|error| {
        format!("TLS cannot be used: {error}; install the system's certificates (ca-certificates), or name a file of them in SSL_CERT_FILE")
    })?;
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(connect_timeout)
        .user_agent(concat!("turnhost/", env!("CARGO_PKG_VERSION")))
        // Whoever redirects could send the key anywhere.
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(retry::never());
    let builder = match way {
        Way::Plain | Way::Direct => builder.no_proxy(),
        Way::Remote => builder,
    };
    builder.build().map_err(|error| format!("no HTTP client: {}", cause(&error)))
}

fn with_certificates(provider: Arc<CryptoProvider>) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_platform_verifier()?.with_no_client_auth())
}

fn without_certificates(provider: Arc<CryptoProvider>) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The body of a response.
pub(super) struct Body<'a> {
    pub(super) response: &'a mut reqwest::Response,
    /// The server's name, for people.
    pub(super) server: &'a str,
}

impl super::stream::Body for Body<'_> {
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        match self.response.chunk().await {
            Ok(piece) => Ok(piece.map(|piece| piece.to_vec())),
            Err(error) => Err(describe(&error, self.server)),
        }
    }
}

/// What broke a connection, for people; the address is left out, for it may hold secrets.
pub(super) fn describe(error: &reqwest::Error, server: &str) -> String {
    let cause = cause(error);
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => format!("no connection to {server} in time; is it reachable?"),
        (true, false) => {
            format!("cannot connect to {server}: {cause}; is it running, and is the base URL right?")
        }
        (false, _) => format!("the connection to {server} broke: {cause}"),
    }
}

/// True if no other attempt would go better: the request itself is wrong, or the server's certificate.
pub(super) fn is_final(error: &reqwest::Error) -> bool {
    error.is_builder() || cause(error).contains("certificate")
}

/// The innermost cause.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = match error.source() {
        Some(source) => source,
        None if error.is_timeout() => return "timed out".to_owned(),
        None if error.is_builder() => return "the request cannot be made".to_owned(),
        None => return "no reason is known".to_owned(),
    };
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
