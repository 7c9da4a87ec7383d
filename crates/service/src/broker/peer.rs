//! Who is at the other end of a connection, and so whose session it is.

use std::time::Instant;
use std::{fmt, fs, io};

use telecl_identity::{Claims, NONCE, Secret, TokenError, is_web_token, now, tenant_of_certificate};
use telecl_net::{ClientCertificate, FrameSender, Stream};
use telecl_policy::{Policy, Tenant};
use telecl_wire::handshake::Challenge;
use tracing::warn;

use super::credentials::Credentials;
use super::greeting::{Arrival, Shown, read_response};
use super::review::{Pod, Presented, Reviewed, review};
use crate::process::peer_user;

/// Where user names are looked up. Other name services, such as LDAP, are not asked: that takes foreign code in this
/// process, and may take any time.
const PASSWD: &str = "/etc/passwd";

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) name: Option<String>,
}

impl User {
    /// Root, and whoever runs the service, see all sessions, and may end them.
    pub(crate) fn is_operator(&self) -> bool {
        self.id == 0 || self.id == rustix::process::geteuid().as_raw()
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.id),
        }
    }
}

/// Whoever has connected. On a Unix socket the kernel knows the user; over TCP nobody does.
pub(crate) fn user_of(stream: &Stream) -> Option<User> {
    if !stream.is_unix() {
        return None;
    }
    match peer_user(stream) {
        Ok(id) => Some(User { id, name: fs::read(PASSWD).ok().and_then(|passwd| user_name(&passwd, id)) }),
        Err(error) => {
            warn!(%error, "cannot find out who has connected to the Unix socket");
            None
        }
    }
}

/// The tenant of whoever runs the service.
pub(crate) fn tenant_of_owner(policy: &Policy) -> Tenant {
    let id = rustix::process::geteuid().as_raw();
    let name = fs::read(PASSWD).ok().and_then(|passwd| user_name(&passwd, id));
    policy.tenant_of_user(id, name.as_deref())
}

/// By what somebody is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityKind {
    /// By the user at the other end of a Unix socket.
    User,
    Certificate,
    Token,
    /// By a token of a Kubernetes service account.
    ServiceAccount,
    Secret,
    /// By nothing.
    Anonymous,
}

impl IdentityKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            IdentityKind::User => "user",
            IdentityKind::Certificate => "certificate",
            IdentityKind::Token => "token",
            IdentityKind::ServiceAccount => "service_account",
            IdentityKind::Secret => "secret",
            IdentityKind::Anonymous => "nothing",
        }
    }
}

/// Who somebody is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) kind: IdentityKind,
    pub(crate) tenant: Tenant,
    /// Known on a Unix socket.
    pub(crate) user: Option<User>,
    /// The name of the user or of the service account, or the token's id.
    pub(crate) subject: Option<String>,
    /// What the token says.
    pub(crate) claims: Option<Claims>,
    /// The pod that it is in.
    pub(crate) pod: Option<Pod>,
}

/// Why somebody is turned away: a name for the audit, and what they are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Refusal {
        Refusal { code: error.code(), text: error.to_string() }
    }
}

impl Identity {
    pub(crate) fn anonymous() -> Identity {
        let tenant = Tenant::anonymous();
        Identity { kind: IdentityKind::Anonymous, tenant, user: None, subject: None, claims: None, pod: None }
    }

    /// Whoever sees all sessions, and may end them. A token that somebody shows at the Unix socket makes them less.
    pub(crate) fn is_operator(&self) -> bool {
        self.kind == IdentityKind::User && self.user.as_ref().is_some_and(User::is_operator)
    }

    /// Finds out who has connected, by what they have shown. May take a round trip, until `deadline`.
    pub(crate) fn find(
        credentials: &Credentials,
        policy: &Policy,
        node: &str,
        arrival: &Arrival,
        shown: &Shown,
        deadline: Instant,
    ) -> Result<Identity, Refusal> {
        let known = credentials.current();
        let user = user_of(&arrival.stream);
        let by =
            |kind, tenant, subject| Identity { kind, tenant, user: user.clone(), subject, claims: None, pod: None };
        let of_user = |user: &User| {
            let tenant = policy.tenant_of_user(user.id, user.name.as_deref());
            by(IdentityKind::User, tenant, Some(user.to_string()))
        };
        if let (Shown::Token(shown), Some(reviewer)) = (shown, credentials.reviewer()) {
            let presented = Presented::parse(shown);
            if is_web_token(presented.token) {
                let Reviewed { tenant, subject, pod } = review(reviewer, &presented, deadline)?;
                return Ok(Identity { pod, ..by(IdentityKind::ServiceAccount, tenant, Some(subject)) });
            }
        }
        match (shown, &known.token_keys, &known.secret) {
            (Shown::Token(token), Some(keys), _) => {
                let claims = keys.verify(token, now(), node)?;
                if known.revoked.has(&claims) {
                    return Err(TokenError::Revoked.into());
                }
                let found = by(IdentityKind::Token, claims.tenant()?, Some(claims.id.clone()));
                return Ok(Identity { claims: Some(claims), ..found });
            }
            // The kernel knows better who is at a Unix socket than a secret does.
            (Shown::Secret(nonce), _, Some(secret)) if user.is_none() => {
                challenge(secret, nonce, &arrival.stream, deadline)?;
                return Ok(by(IdentityKind::Secret, credentials.secret_tenant.clone(), None));
            }
            _ => {}
        }
        if let Some(user) = &user {
            return Ok(of_user(user));
        }
        match &arrival.certificate {
            ClientCertificate::Valid(certificate) => match tenant_of_certificate(certificate) {
                Some(tenant) => return Ok(by(IdentityKind::Certificate, tenant, None)),
                None => return Err(refusal("certificate_no_tenant", NO_TENANT)),
            },
            ClientCertificate::UnknownAuthority => return Err(refusal("certificate_unknown_ca", UNKNOWN_CA)),
            ClientCertificate::Invalid(reason) => {
                let text = format!("your certificate is not taken: {reason}; ask for a new one (telecl pki issue)");
                return Err(Refusal { code: "certificate_invalid", text });
            }
            ClientCertificate::None => {}
        }
        match shown {
            Shown::Token(_) if credentials.any() => Err(refusal("token_not_taken", TOKEN_NOT_TAKEN)),
            Shown::Secret(_) if credentials.any() => Err(refusal("secret_not_taken", SECRET_NOT_TAKEN)),
            _ if credentials.required() => Err(refusal("no_credential", NO_CREDENTIAL)),
            _ => Ok(Identity::anonymous()),
        }
    }
}

const NO_CREDENTIAL: &str = "this service wants to know who you are: set token, or certificate and key, or secret to files \
     that whoever runs it has given you (docs/credentials.md)";
const TOKEN_NOT_TAKEN: &str = "this service takes no tokens; ask whoever runs it what it takes";
const SECRET_NOT_TAKEN: &str = "this service takes no secret; ask whoever runs it what it takes";
const NO_TENANT: &str = "your certificate names no tenant: it needs a common name, or an alternative name such as \
     telecl:tenant:NAME (telecl pki issue)";
const UNKNOWN_CA: &str = "your certificate was signed by a CA that this service does not know; ask whoever runs it for one \
     of its own (telecl pki issue)";

fn refusal(code: &'static str, text: &str) -> Refusal {
    Refusal { code, text: text.to_owned() }
}

/// Shows that the service has the secret, and has the driver show the same.
fn challenge(secret: &Secret, theirs: &[u8; NONCE], stream: &Stream, deadline: Instant) -> Result<(), Refusal> {
    let failed = |error: io::Error| Refusal { code: "secret_failed", text: format!("no proof of the secret: {error}") };
    let ours: [u8; NONCE] = telecl_identity::random().map_err(failed)?;
    let binding = stream.binding();
    let proof = secret.prove_service(theirs, &ours, &binding);
    let sent =
        stream.try_clone().and_then(|stream| FrameSender::new(stream).send(&Challenge { nonce: ours, proof }, &[]));
    sent.map_err(failed)?;
    let response = match read_response(stream, deadline) {
        Ok(Some(response)) => response,
        // A driver that does not find the secret in our proof says no more.
        Ok(None) => return Err(refusal("secret_wrong", SECRET_WRONG)),
        Err(error) => return Err(failed(error)),
    };
    if secret.is_driver(&response.proof, theirs, &ours, &binding) {
        return Ok(());
    }
    Err(refusal("secret_wrong", SECRET_WRONG))
}

const SECRET_WRONG: &str = "the driver does not have the secret of this service: its secret file has other content";

/// The first name that a passwd file has for a user.
fn user_name(passwd: &[u8], uid: u32) -> Option<String> {
    passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        // Lines that begin with these are for a name service that is no longer in use.
        if name.is_empty() || name.starts_with(b"+") || name.starts_with(b"-") {
            return None;
        }
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        (number == uid).then(|| String::from_utf8(name.to_vec()).ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use telecl_config::ServiceCredentialFiles;

    use super::*;

    #[test]
    fn names_come_from_the_passwd_file() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n# a comment\n+::0:0:::\nbroken:x\n:x:7::\nalice:x:1000:1000::/:/bin/sh\nagain:x:1000:1:::\nodd:x:-3:1::\n\xff\xfe:x:9:9:::";
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("alice"));
        for nobody in [1, 3, 7, 9, u32::MAX] {
            assert_eq!(user_name(passwd, nobody), None, "{nobody}");
        }
        assert_eq!(user_name(b"", 0), None);
    }

    #[test]
    fn the_peer_of_a_unix_socket_is_a_user() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = std::path::Path::new("policy.toml");
        let policy = Policy::parse(path, &format!("[users]\n{uid} = \"me\"\n")).unwrap();
        let user = user_of(&Stream::from_fd(ours.into())).unwrap();
        assert!(user.id == uid && user.is_operator());
        let tenant = |stream: Stream| {
            let credentials = Credentials::load(ServiceCredentialFiles::default(), Tenant::anonymous()).unwrap();
            let arrival = Arrival { stream, certificate: ClientCertificate::None };
            let found = Identity::find(&credentials, &policy, "node", &arrival, &Shown::None, Instant::now()).unwrap();
            (found.tenant.as_str().to_owned(), found.is_operator())
        };
        assert_eq!(tenant(Stream::from_fd(UnixStream::pair().unwrap().0.into())), ("me".to_owned(), true));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = Stream::from_fd(tcp.into());
        assert_eq!(user_of(&tcp), None);
        assert_eq!(tenant(tcp), ("anonymous".to_owned(), false));
    }
}
