//! How `libtelecl.so` is linked.

fn main() {
    // nodelete: loaders dlclose a driver that reports no platform, while our threads still run in
    // this library's text.
    // Bsymbolic: libOpenCL exports clGetPlatformInfo too; without this our own calls could land there.
    for arg in ["-z,nodelete", "-Bsymbolic", "-soname,libtelecl.so.1"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
}
