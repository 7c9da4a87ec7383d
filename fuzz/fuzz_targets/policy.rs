//! The policy: who may use how much. An operator's file, but a service reads it again while it runs.
#![no_main]

use std::path::Path;

use fuzz::memory::{Counting, bounded};
use libfuzzer_sys::fuzz_target;
use telecl_policy::{Policy, Tenant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    bounded("policy", input.len(), 8 << 10, 256 << 10, || match Policy::parse(Path::new("policy.toml"), text) {
        Ok(policy) => {
            for tenant in [Tenant::anonymous(), policy.tenant_of_user(0, Some("root")), policy.tenant_of_user(7, None)]
            {
                let _ = policy.for_tenant(&tenant);
            }
            let _ = policy.for_devices();
        }
        Err(problems) => assert!(!problems.is_empty(), "refused without a reason"),
    });
});
