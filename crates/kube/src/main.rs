//! `telecl-kube`: what telecl needs inside a Kubernetes cluster and nowhere else.
#![forbid(unsafe_code)]

mod objects;

fn main() {
    for definition in objects::definitions() {
        println!("---\n{}", serde_json::to_string_pretty(&definition).unwrap_or_default());
    }
}
