//! Who is at the other end: certificates, signed tokens and shared secrets.
//!
//! Drivers and the command line present what they have ([`Credentials`]); services check it ([`VerifyingKeys`],
//! [`Secret`], [`tenant_of_certificate`]); operators make it ([`pki`], [`SigningKey`]). Everything is verified without
//! asking anybody else.
//!
//! Credentials are files, and files that others may read are refused ([`read`]). What a tenant may do is the policy's
//! business; this crate only says who it is, and what its token allows at most.
#![forbid(unsafe_code)]

mod certificate;
mod client;
mod file;
pub mod pki;
mod secret;
mod token;

pub use certificate::tenant_of_certificate;
pub use client::{CredentialError, Credentials, IntroduceError, Presented};
pub use file::{FileError, Privacy, certificates, private_key, read, read_text};
pub use secret::{NONCE, Secret, SecretError};
pub use token::{
    Claims, KeyError, RevokedList, SigningKey, TokenDevices, TokenError, VerifyingKeys, is_web_token, now,
};

use ring::rand::{SecureRandom, SystemRandom};

/// What nobody can guess, from the system's random source.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| std::io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
