//! What a driver, or the command line, presents to services.

use std::io;
use std::path::{Path, PathBuf};

use telecl_config::CredentialFiles;
use telecl_net::{Authority, Dialer, FrameReceiver, FrameSender, Progress, ReceiveError, Stream};
use telecl_wire::DecodeError;
use telecl_wire::handshake::{Challenge, Credential, CredentialKind, Refused, Response};
use telecl_wire::request::Message;

use crate::file::{FileError, Privacy, certificates, private_key, read_text};
use crate::random;
use crate::secret::{Secret, SecretError};
use crate::token::is_web_token;

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("certificate is set, and key is not: a certificate needs its key")]
    NoKey,
    #[error("key is set, and certificate is not: a key needs its certificate")]
    NoCertificate,
    #[error("{0} is empty; it should have a token (telecl token create)")]
    NoToken(PathBuf),
    #[error("{0}")]
    Random(#[from] io::Error),
}

/// Why a service did not answer as one that knows us.
#[derive(Debug, thiserror::Error)]
pub enum IntroduceError {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(
        "it does not have our secret: somebody else may be answering, or its secret file has other content than ours"
    )]
    WrongSecret,
    #[error("it has not proven that it has our secret; it takes no secret, or somebody else is answering")]
    NotProven,
}

impl From<io::Error> for IntroduceError {
    fn from(error: io::Error) -> IntroduceError {
        IntroduceError::Receive(error.into())
    }
}

/// Everything that says who we are, and whom we trust.
#[derive(Debug, Default)]
pub struct Credentials {
    dialer: Dialer,
    token: Option<String>,
    secret: Option<Secret>,
}

impl Credentials {
    /// Reads the files; none is read that is not named.
    pub fn load(files: &CredentialFiles) -> Result<Credentials, CredentialError> {
        let mut dialer = Dialer::default();
        if let Some(ca) = &files.ca {
            dialer.trust(Authority::new(certificates(ca)?, ca.clone()));
        }
        match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => dialer.show(certificates(certificate)?, private_key(key)?),
            (Some(_), None) => return Err(CredentialError::NoKey),
            (None, Some(_)) => return Err(CredentialError::NoCertificate),
            (None, None) => {}
        }
        let token = match &files.token {
            Some(path) => {
                let token = read_token(path)?;
                if token.is_empty() {
                    return Err(CredentialError::NoToken(path.clone()));
                }
                Some(with_words(token, files))
            }
            None => None,
        };
        let secret = files.secret.as_deref().map(Secret::load).transpose()?;
        if secret.is_some() {
            dialer.await_proof();
        }
        if files.insecure {
            dialer.be_insecure();
        }
        Ok(Credentials { dialer, token, secret })
    }

    /// Connects to services.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// What is presented on this connection. Nothing goes to a service that is not known that it could use elsewhere.
    pub fn present(&self, stream: &Stream) -> io::Result<Presented<'_>> {
        let must_prove = !stream.is_verified() && (self.secret.is_some() || !self.dialer.is_insecure());
        let is_private = stream.is_encrypted() || stream.is_loopback();
        let token = self.token.as_deref().filter(|_| is_private && !must_prove);
        let kind = match (token, &self.secret) {
            (Some(_), _) => CredentialKind::Token,
            (None, Some(_)) => CredentialKind::Secret,
            (None, None) => CredentialKind::None,
        };
        let nonce = if kind == CredentialKind::Secret { random()? } else { [0; 32] };
        let credential = Credential { kind, token: token.unwrap_or_default(), nonce };
        Ok(Presented { credential, secret: self.secret.as_ref(), binding: stream.binding(), must_prove })
    }
}

/// Reads a token. One of Kubernetes is kept as the kubelet keeps it, which renews it, too.
fn read_token(path: &Path) -> Result<String, FileError> {
    let token = read_text(path, Privacy::Mounted)?.trim().to_owned();
    if is_web_token(&token) {
        return Ok(token);
    }
    Ok(read_text(path, Privacy::Group)?.trim().to_owned())
}

/// What a pod's program says beside its token: in which container it is, and which profile it wants.
fn with_words(mut token: String, files: &CredentialFiles) -> String {
    if is_web_token(&token) {
        for (word, value) in [("container", &files.container), ("profile", &files.profile)] {
            let value = value.as_deref().unwrap_or_default();
            if !value.is_empty() && !value.contains(char::is_whitespace) {
                token += &format!(" {word}={value}");
            }
        }
    }
    token
}

/// What is presented on one connection.
#[derive(Debug)]
pub struct Presented<'c> {
    /// For the first words.
    pub credential: Credential<'c>,
    secret: Option<&'c Secret>,
    binding: [u8; 32],
    /// Whether the service must prove that it has the secret before it is believed.
    must_prove: bool,
}

impl Presented<'_> {
    /// Sends the first words, and goes through a challenge if there is one. The answer is the receiver's frame.
    pub fn introduce<'m>(
        &self,
        message: &impl Message<'m>,
        sender: &mut FrameSender,
        receiver: &mut FrameReceiver,
    ) -> Result<Progress, IntroduceError> {
        sender.send(message, &[])?;
        let mut proven = false;
        loop {
            let progress = receiver.wait()?;
            if progress != Progress::Ready {
                return Ok(progress);
            }
            let frame = receiver.frame();
            match frame.opcode {
                Challenge::OPCODE if !proven => {
                    let challenge: Challenge = telecl_wire::decode(frame.body).map_err(ReceiveError::Protocol)?;
                    let response = self.answer(&challenge)?;
                    proven = true;
                    sender.send(&response, &[])?;
                }
                Challenge::OPCODE => return Err(ReceiveError::Protocol(DecodeError::BadValue).into()),
                // A refusal may be a stranger's, but says nothing that could do harm.
                Refused::OPCODE => return Ok(progress),
                _ if self.must_prove && !proven => return Err(IntroduceError::NotProven),
                _ => return Ok(progress),
            }
        }
    }

    /// The driver's proof, if the service's is right.
    fn answer(&self, challenge: &Challenge) -> Result<Response, IntroduceError> {
        let secret = self.secret.filter(|_| self.credential.kind == CredentialKind::Secret);
        let secret = secret.ok_or(ReceiveError::Protocol(DecodeError::BadValue))?;
        let (ours, theirs, binding) = (&self.credential.nonce, &challenge.nonce, &self.binding);
        if !secret.is_service(&challenge.proof, ours, theirs, binding) {
            return Err(IntroduceError::WrongSecret);
        }
        Ok(Response { proof: secret.prove_driver(ours, theirs, binding) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kubelets_token_may_be_read_by_all_and_is_shown_with_what_the_pod_says() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let files = CredentialFiles {
            token: Some(path.clone()),
            container: Some("main".to_owned()),
            profile: Some("two words".to_owned()),
            ..CredentialFiles::default()
        };
        let token = || Credentials::load(&files).map(|credentials| credentials.token.unwrap());
        write("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln\n", 0o644);
        assert_eq!(token().unwrap(), "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln container=main");
        // The kubelet has renewed it.
        write("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ5In0.c2ln", 0o600);
        assert_eq!(token().unwrap(), "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ5In0.c2ln container=main");
        for (text, mode) in [("eyJhbGciOiJSUzI1NiJ9.eyJ9.c2ln", 0o666), ("telecl1.eyJ9.c2ln", 0o644)] {
            write(text, mode);
            assert!(token().unwrap_err().to_string().contains("chmod"), "{text} {mode:o}");
        }
        write("telecl1.eyJ9.c2ln", 0o640);
        assert_eq!(token().unwrap(), "telecl1.eyJ9.c2ln");
    }

    #[test]
    fn ours_are_no_web_tokens() {
        assert!(is_web_token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"));
        for other in ["", "telecl1.eyJ9.c2ln", "eyJ9.eyJ9", "eyJ9.eyJ9.c2ln.x", "eyJ9..c2ln", "eyJ9.a b.c", "x.y.z"] {
            assert!(!is_web_token(other), "{other}");
        }
    }
}
