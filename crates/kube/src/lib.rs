//! What telecl needs inside a Kubernetes cluster and nowhere else.
//!
//! The [`controller`] injects telecl's driver into labelled pods ([`inject`], asked through [`webhook`]), keeps the certificates
//! of itself and of the services ([`certificates`]) and makes services outside the cluster findable inside it. [`objects`] are
//! what people write to say who may use what; [`render`] makes the policy of a service of them, which the [`agent`] beside
//! each service puts in force, and it knows whose tokens are good. What happens is told as [`events`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod certificates;
pub mod controller;
pub mod definitions;
pub mod events;
pub mod inject;
pub mod leader;
// The lint takes the columns of a definition for one attribute that is there several times.
#[allow(clippy::duplicated_attributes)]
pub mod objects;
pub mod render;
pub mod webhook;
