//! Tokens, as whoever connects shows them: before anything in one is believed, and what a key has really signed.
#![no_main]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use telecl_identity::{Claims, SigningKey, VerifyingKeys};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A service's clock: in 2026.
const NOW: u64 = 1_790_000_000;

fn keys() -> &'static (SigningKey, VerifyingKeys) {
    static KEYS: OnceLock<(SigningKey, VerifyingKeys)> = OnceLock::new();
    KEYS.get_or_init(|| {
        let (private, public) = SigningKey::generate().expect("a key");
        let file = |name: &str, text: &str| -> PathBuf {
            let path = std::env::temp_dir().join(format!("telecl-fuzz-{}-{name}", std::process::id()));
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a file of our own");
            path
        };
        let (private, public) = (file("token.key", &private), file("token.pub", &public));
        let keys = (SigningKey::load(&private).expect("our key"), VerifyingKeys::load(&public).expect("our key"));
        [private, public].iter().for_each(|path| fs::remove_file(path).expect("our file"));
        keys
    })
}

fuzz_target!(|input: &[u8]| {
    let (signing, verifying) = keys();
    let Ok(text) = std::str::from_utf8(input) else { return };
    bounded("token", input.len(), 64, 64 << 10, || {
        let refused = verifying.verify(text, NOW, "node7").expect_err("nobody can have signed it");
        assert!(!refused.code().is_empty() && !refused.to_string().is_empty());
        let _ = Claims::unverified(text);
        // What it would say if it were signed.
        let Ok(claims) = serde_json::from_slice::<Claims>(input) else { return };
        let Ok(token) = signing.sign(&claims) else { return };
        assert_eq!(Claims::unverified(&token).as_ref(), Ok(&claims));
        if let Ok(taken) = verifying.verify(&token, NOW, "node7") {
            assert_eq!(taken, claims);
            assert!(taken.tenant().is_ok() && taken.devices("node7").is_ok() && taken.expires > NOW);
        }
        let mut forged = token.clone();
        let last = forged.pop().expect("a token is not empty");
        forged.push(if last == 'A' { 'B' } else { 'A' });
        assert!(verifying.verify(&forged, NOW, "node7").is_err());
    });
});
