//! Samplers.

use std::sync::Arc;

use telecl_opencl::{ClResult, Sampler};
use telecl_wire::request::{CreateSampler, Message};

use super::session::Session;

impl Session {
    pub(super) fn create_sampler(&mut self, request: &CreateSampler<'_>) {
        let made = self.make_sampler(request).map(Arc::new);
        self.link.created(CreateSampler::OPCODE, "CreateSampler", request.context, request.id, &made);
        self.samplers.insert(request.id, made);
    }

    fn make_sampler(&self, request: &CreateSampler<'_>) -> ClResult<Sampler> {
        let context = self.context(request.context)?;
        if request.properties.is_empty() {
            context.create_sampler(request.normalized, request.addressing, request.filter)
        } else {
            let properties: Vec<u64> = request.properties.iter().collect();
            context.create_sampler_with_properties(&properties)
        }
    }
}
