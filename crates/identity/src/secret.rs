//! A secret that both sides have, and prove to each other without sending it.
//!
//! Each side proves it for a number that the other has just made up, and for the TLS connection on which they talk: a proof
//! that was recorded, or passed on by somebody in the middle, is worth nothing.

use std::fmt;
use std::path::Path;

use ring::hmac;

use crate::file::{FileError, Privacy, read};

/// The size of the numbers that sides make up.
pub const NONCE: usize = 32;

/// A secret.
pub struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    File(#[from] FileError),
}

/// Who proves.
#[derive(Clone, Copy, Debug)]
enum Side {
    Driver,
    Service,
}

impl Secret {
    /// The fewest bytes.
    pub const LEAST: usize = 32;

    /// Reads a file of at least 32 bytes that nobody but its owner may read. A line's end is no part of it.
    pub fn load(path: &Path) -> Result<Secret, SecretError> {
        let bytes = read(path, Privacy::Owner)?;
        let bytes = bytes.trim_ascii_end();
        if bytes.len() < Secret::LEAST {
            let reason = format!("it has {} bytes, {} at least are needed", bytes.len(), Secret::LEAST);
            return Err(FileError::content(path, "a secret", reason).into());
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// That the service has it.
    pub fn prove_service(&self, driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> [u8; 32] {
        self.prove(Side::Service, driver, service, binding)
    }

    /// That the driver has it.
    pub fn prove_driver(&self, driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> [u8; 32] {
        self.prove(Side::Driver, driver, service, binding)
    }

    /// Whether the service has it.
    pub fn is_service(&self, proof: &[u8], driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> bool {
        self.verify(proof, Side::Service, driver, service, binding)
    }

    /// Whether the driver has it.
    pub fn is_driver(&self, proof: &[u8], driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> bool {
        self.verify(proof, Side::Driver, driver, service, binding)
    }

    fn prove(&self, side: Side, driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> [u8; 32] {
        let tag = hmac::sign(&self.0, &message(side, driver, service, binding));
        let mut proof = [0; 32];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    fn verify(
        &self,
        proof: &[u8],
        side: Side,
        driver: &[u8; NONCE],
        service: &[u8; NONCE],
        binding: &[u8; 32],
    ) -> bool {
        // Takes as long in any case.
        hmac::verify(&self.0, &message(side, driver, service, binding), proof).is_ok()
    }
}

fn message(side: Side, driver: &[u8; NONCE], service: &[u8; NONCE], binding: &[u8; 32]) -> Vec<u8> {
    let label: &[u8] = match side {
        Side::Driver => b"telecl secret 1: driver\0",
        Side::Service => b"telecl secret 1: service\0",
    };
    [label, driver, service, binding].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn secret(text: &str) -> Result<Secret, SecretError> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Secret::load(&path)
    }

    #[test]
    fn a_proof_holds_for_its_side_its_numbers_and_its_connection_only() {
        let (ours, same, other) = (
            secret(&"s".repeat(32)).unwrap(),
            secret(&format!("{}\n", "s".repeat(32))).unwrap(),
            secret(&"t".repeat(40)).unwrap(),
        );
        let (driver, service, binding) = ([1; 32], [2; 32], [3; 32]);
        let proof = ours.prove_service(&driver, &service, &binding);
        assert!(same.is_service(&proof, &driver, &service, &binding));
        assert!(!other.is_service(&proof, &driver, &service, &binding));
        assert!(!same.is_driver(&proof, &driver, &service, &binding), "it is not to be sent back");
        assert!(!same.is_service(&proof, &[9; 32], &service, &binding));
        assert!(!same.is_service(&proof, &driver, &[9; 32], &binding));
        assert!(!same.is_service(&proof, &driver, &service, &[9; 32]), "somebody is in the middle");
        let answer = ours.prove_driver(&driver, &service, &binding);
        assert!(same.is_driver(&answer, &driver, &service, &binding));
        assert!(!same.is_driver(&answer[..31], &driver, &service, &binding));
    }

    #[test]
    fn a_short_secret_is_none() {
        let message = secret("too short").unwrap_err().to_string();
        assert!(message.contains("it has 9 bytes, 32 at least"), "{message}");
    }
}
