//! `telecl-kube`: what telecl needs inside a Kubernetes cluster and nowhere else.

fn main() {
    println!("nothing yet");
}
