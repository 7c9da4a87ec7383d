//! Samplers.

use std::sync::Arc;

use telecl_sys::*;
use telecl_wire::request::{CreateSampler, Kind};
use telecl_wire::{Ids, WireId};

use super::context::Context;
use super::info::{InfoValue, value};
use crate::process::state;
use crate::registry::{Base, Object, Registry};

/// A sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    base: Base<Sampler>,
    pub(crate) context: Arc<Context>,
    request: SamplerRequest,
}

/// How a sampler was asked for.
#[derive(Clone, Debug)]
pub(crate) struct SamplerRequest {
    pub(crate) normalized: cl_bool,
    pub(crate) addressing: cl_addressing_mode,
    pub(crate) filter: cl_filter_mode,
    /// The list given to `clCreateSamplerWithProperties`, with its final zero.
    pub(crate) list: Option<Vec<u64>>,
}

impl Object for Sampler {
    const INVALID: cl_int = CL_INVALID_SAMPLER;
    const KIND: Kind = Kind::Sampler;

    fn registry() -> &'static Registry<Self> {
        &state().samplers
    }

    fn base(&self) -> &Base<Self> {
        &self.base
    }
}

impl SamplerRequest {
    /// Reads a property list without its final zero. A null list and an empty one both mean defaults.
    pub(crate) fn parse(list: &[u64]) -> ClResult<SamplerRequest> {
        let mut request =
            SamplerRequest { normalized: CL_TRUE, addressing: CL_ADDRESS_CLAMP, filter: CL_FILTER_NEAREST, list: None };
        let mut seen = Vec::new();
        for pair in list.chunks(2) {
            let &[name, value] = pair else { return Err(ClError(CL_INVALID_VALUE)) };
            // CL_INVALID_VALUE if the same property name is specified more than once.
            if seen.contains(&name) {
                return Err(ClError(CL_INVALID_VALUE));
            }
            seen.push(name);
            let value = u32::try_from(value).map_err(|_| ClError(CL_INVALID_VALUE))?;
            match u32::try_from(name).unwrap_or(0) {
                CL_SAMPLER_NORMALIZED_COORDS => request.normalized = value,
                CL_SAMPLER_ADDRESSING_MODE => request.addressing = value,
                CL_SAMPLER_FILTER_MODE => request.filter = value,
                // CL_INVALID_VALUE if the property name in sampler_properties is not a supported name.
                _ => return Err(ClError(CL_INVALID_VALUE)),
            }
        }
        Ok(request)
    }
}

impl Sampler {
    /// `clCreateSampler` and `…WithProperties`.
    pub(crate) fn new(context: &Arc<Context>, request: SamplerRequest) -> ClResult<Arc<Sampler>> {
        // CL_INVALID_VALUE if addressing_mode, filter_mode, normalized_coords or a combination of
        // these arguments are not valid.
        let addressing_is_known = (CL_ADDRESS_NONE..=CL_ADDRESS_MIRRORED_REPEAT).contains(&request.addressing);
        let filter_is_known = matches!(request.filter, CL_FILTER_NEAREST | CL_FILTER_LINEAR);
        if !addressing_is_known || !filter_is_known || request.normalized > CL_TRUE {
            return Err(ClError(CL_INVALID_VALUE));
        }
        // CL_INVALID_OPERATION if images are not supported by any device associated with context.
        if !context.has_images() {
            return Err(ClError(CL_INVALID_OPERATION));
        }
        let sampler = Arc::new(Sampler { base: Base::new(&context.session), context: Arc::clone(context), request });
        let request = &sampler.request;
        let list: Vec<WireId> = match &request.list {
            Some(list) => list.iter().take(list.len().saturating_sub(1)).map(|&v| WireId::new(v)).collect(),
            None => Vec::new(),
        };
        let create = CreateSampler {
            id: sampler.id(),
            context: context.id(),
            normalized: request.normalized != CL_FALSE,
            addressing: request.addressing,
            filter: request.filter,
            properties: Ids(&list),
        };
        context.session.post(&create, &[])?;
        context.check(Kind::Sampler, sampler.id())?;
        Ok(sampler)
    }

    pub(crate) fn id(&self) -> u64 {
        self.base.id
    }

    /// `clGetSamplerInfo`.
    pub(crate) fn info(&self, param: cl_sampler_info) -> ClResult<InfoValue<'_>> {
        Ok(match param {
            CL_SAMPLER_REFERENCE_COUNT => value(self.base.references()),
            CL_SAMPLER_CONTEXT => value(self.context.address()),
            CL_SAMPLER_NORMALIZED_COORDS => value(self.request.normalized),
            CL_SAMPLER_ADDRESSING_MODE => value(self.request.addressing),
            CL_SAMPLER_FILTER_MODE => value(self.request.filter),
            CL_SAMPLER_PROPERTIES => value(self.request.list.as_deref().unwrap_or_default()),
            _ => return Err(ClError(CL_INVALID_VALUE)),
        })
    }
}
