//! What a service offers: platforms and devices with everything that can be asked about them.

use crate::codec::bodies;

bodies! {
    /// The answer to one `clGet*Info` query, asked in advance.
    pub struct Info<'a> {
        pub param: u32,
        /// The vendor's status; a negative one has no value.
        pub status: i32,
        pub value: &'a [u8],
    }

    /// A device; sub-devices are described the same way.
    pub struct Device<'a> {
        /// Root devices are numbered by the service, below [`crate::FIRST_DRIVER_ID`].
        pub id: u64,
        pub info: Vec<Info<'a>>,
    }

    /// A vendor's platform and its devices.
    pub struct Platform<'a> {
        /// Names the platform in `CreateContext`.
        pub index: u32,
        pub info: Vec<Info<'a>>,
        pub devices: Vec<Device<'a>>,
    }

    /// All platforms of a node, as a worker reports them to its broker.
    pub struct Inventory<'a> {
        pub platforms: Vec<Platform<'a>>,
    }
}
