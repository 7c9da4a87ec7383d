//! What containers need to use a service: the driver, an ICD file, the secret and the addresses. All of it is in the directory
//! of the service's job, so that one bind mount is enough.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::job::JobId;
use super::place::{NotReady, Place, private_directory};
use super::script::quoted;
use crate::exit::{Exit, Failure, Outcome, print};
use crate::launch;

/// Where the directory is in containers that can be given new directories.
const INSIDE: &str = "/opt/telecl";
/// Charliecloud mounts only over directories that an image has, and every image has this one.
const INSIDE_CHARLIECLOUD: &str = "/mnt";

/// Print the options that let a container use a service job's devices
///
/// Bind mounts and variables, as words for a shell. The image needs an OpenCL loader (libOpenCL.so.1) and nothing of telecl.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  apptainer exec $(telecl container-args apptainer --service 4711) image.sif clinfo -l
  ch-run $(telecl container-args charliecloud --service 4711) ./image -- clinfo -l
  podman run --rm $(telecl container-args podman --service 4711) IMAGE clinfo -l")]
pub(crate) struct ContainerArgs {
    /// What runs the container
    #[arg(value_enum)]
    runtime: Runtime,
    /// The service's job, which must be ready
    #[arg(long, value_name = "JOBID")]
    service: JobId,
    /// Another driver than the one that the service has put there, for an image with a C library of its own
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    #[value(alias = "singularity")]
    Apptainer,
    Charliecloud,
    Podman,
}

/// `telecl container-args`.
pub(crate) fn container_args(args: &ContainerArgs) -> Outcome {
    let place = ready(&args.service)?;
    let driver = args.driver.as_deref().map(|driver| launch::find_driver(Some(driver))).transpose()?;
    let used = driver.clone().unwrap_or_else(|| place.path.join(launch::DRIVER));
    if let Some(minor) = newest_glibc(&fs::read(&used).unwrap_or_default()).filter(|minor| *minor > PORTABLE_GLIBC) {
        eprintln!(
            "note: {} needs glibc 2.{minor} in the image; the driver for older ones and for musl (make driver-portable) was not \
             installed when job {} began",
            used.display(),
            args.service
        );
    }
    for path in [Some(place.path.as_path()), driver.as_deref()].into_iter().flatten() {
        check_path(path)?;
    }
    print(format_args!("{}\n", words(args.runtime, &place.path, driver.as_deref()).join(" ")));
    Ok(Exit::Ok)
}

/// What a shell would split, or a container runtime take for the end of a path.
fn check_path(path: &Path) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    if text.contains(|c: char| c.is_whitespace() || ":,$'\"\\*?[".contains(c)) {
        let what = format!("{text:?} cannot be named in options for containers");
        return Err(Failure::new(Exit::Usage, what, "Bind it by hand; docs/hpc.md says which variables are set"));
    }
    Ok(())
}

/// The driver for containers does with glibc 2.17, and with musl.
const PORTABLE_GLIBC: u32 = 17;

/// The newest glibc whose symbols a library asks for: 34 for 2.34. None for a library that asks for none.
fn newest_glibc(library: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"GLIBC_2.";
    let minor = |at: usize| {
        let digits: Vec<u8> =
            library[at + NAME.len()..].iter().copied().take_while(u8::is_ascii_digit).take(3).collect();
        std::str::from_utf8(&digits).ok()?.parse().ok()
    };
    let found = library.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    found.filter_map(|(at, _)| minor(at)).max()
}

/// The options, each a word that a shell does not split: command substitution knows no quotes.
fn words(runtime: Runtime, place: &Path, driver: Option<&Path>) -> Vec<String> {
    let place = place.display();
    // Over the one that is there.
    let over = |option: &str, inside: &str, mode: &str| {
        driver.map(|driver| format!("{option}={}:{inside}/{}{mode}", driver.display(), launch::DRIVER))
    };
    match runtime {
        Runtime::Apptainer => {
            let mut words =
                vec![format!("--bind={place}:{INSIDE}:ro"), format!("--bind={place}/vendors:/etc/OpenCL/vendors:ro")];
            words.extend(over("--bind", INSIDE, ":ro"));
            words.extend(variables(INSIDE, "vendors").into_iter().map(|(name, value)| format!("--env={name}={value}")));
            words
        }
        Runtime::Charliecloud => {
            let mut words = vec![format!("--bind={place}:{INSIDE_CHARLIECLOUD}")];
            words.extend(over("--bind", INSIDE_CHARLIECLOUD, ""));
            let variables = variables(INSIDE_CHARLIECLOUD, "vendors-mnt");
            words.extend(variables.into_iter().map(|(name, value)| format!("--set-env={name}={value}")));
            words
        }
        Runtime::Podman => {
            // As the same user inside: files with secrets are refused if they are another's.
            let mut words = vec!["--userns=keep-id".to_owned(), "--network=host".to_owned()];
            words.push(format!("--volume={place}:{INSIDE}:ro"));
            words.extend(over("--volume", INSIDE, ":ro"));
            words.extend(variables(INSIDE, "vendors").into_iter().map(|(name, value)| format!("--env={name}={value}")));
            words
        }
    }
}

/// What the loader and the driver are told, for a directory that is at `inside`.
fn variables(inside: &str, vendors: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OCL_ICD_VENDORS", format!("{inside}/{vendors}")),
        ("OCL_ICD_FILENAMES", format!("{inside}/{}", launch::DRIVER)),
        ("TELECL_SESSION_DIR", inside.to_owned()),
        // In the file there it has the path that it has outside.
        ("TELECL_SECRET", format!("{inside}/secret")),
    ]
}

/// The directory of a service that is ready.
fn ready(job: &JobId) -> Result<Place, Failure> {
    let place = Place::of(job)?;
    match place.read() {
        Ok(_) if place.path.join(launch::DRIVER).exists() => Ok(place),
        Ok(_) => Err(Failure::new(
            Exit::Failed,
            format!("{} has no driver for containers", place.path.display()),
            "The service's log says why; install libtelecl.so beside telecl, and start another service",
        )),
        Err(NotReady::Wrong(failure)) => Err(failure),
        Err(NotReady::Missing) => Err(Failure::new(
            Exit::Unreachable,
            format!("job {job} has no service that is ready: there is no {}", place.ready_mark().display()),
            format!("Wait for it: telecl slurm run --service {job} -- true"),
        )),
    }
}

/// Puts the driver and its ICD files into the job's directory.
pub(super) fn provide(place: &Place) -> Result<(), Failure> {
    let driver = portable_driver()?;
    let copied = copy(&driver, place);
    copied.map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot copy {}: {error}", driver.display()), "Is there room?")
    })
}

fn copy(driver: &Path, place: &Place) -> io::Result<()> {
    fs::copy(driver, place.path.join(launch::DRIVER))?;
    for (vendors, inside) in [("vendors", INSIDE), ("vendors-mnt", INSIDE_CHARLIECLOUD)] {
        let directory = place.path.join(vendors);
        private_directory(&directory)?;
        fs::write(directory.join("telecl.icd"), format!("{inside}/{}\n", launch::DRIVER))?;
    }
    Ok(())
}

/// The driver that loads in old images, if it is installed or built; otherwise that of this system.
fn portable_driver() -> Result<PathBuf, Failure> {
    let driver = launch::find_driver(None)?;
    let beside = driver.parent().map(|directory| directory.join("portable").join(launch::DRIVER));
    // As built: target/release/libtelecl.so and target/portable/libtelecl.so.
    let built = driver.parent().and_then(Path::parent).map(|directory| directory.join("portable").join(launch::DRIVER));
    Ok(beside.into_iter().chain(built).find(|path| path.is_file()).unwrap_or(driver))
}

/// `telecl slurm pod-snippet`.
pub(super) fn pod_snippet(job: JobId) -> Outcome {
    let place = ready(&job)?;
    let env: String = variables(INSIDE, "vendors")
        .into_iter()
        .map(|(name, value)| format!("        - {{name: {name}, value: {value}}}\n"))
        .collect();
    // No `type`: HPK makes no link for a hostPath that has one.
    print(format_args!(
        "# For the specification of a pod that runs as a Slurm job of the same user (HPK), while job {job} runs.
# The image needs an OpenCL loader (libOpenCL.so.1) and nothing of telecl.
spec:
  volumes:
    - name: telecl
      hostPath: {{path: {path}}}
  containers:
    - name: CONTAINER               # yours
      volumeMounts:
        - {{name: telecl, mountPath: {INSIDE}, readOnly: true}}
      env:
{env}",
        path = quoted(&place.path.to_string_lossy()),
    ));
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_one_word() {
        for runtime in [Runtime::Apptainer, Runtime::Charliecloud, Runtime::Podman] {
            let place = Path::new("/home/alice/.telecl/jobs/17");
            let all = words(runtime, place, Some(Path::new("/opt/musl.so")));
            for word in &all {
                assert!(word.starts_with("--") && !word.contains(char::is_whitespace), "{word}");
            }
            let driver = |words: &[String]| words.iter().filter(|word| word.contains("=/opt/musl.so:/")).count();
            assert_eq!((driver(&all), driver(&words(runtime, place, None))), (1, 0));
        }
    }

    #[test]
    fn a_path_that_would_become_two_words_is_refused() {
        assert!(check_path(Path::new("/home/alice/.telecl/jobs/17")).is_ok());
        for bad in ["/home/al ice", "/a:b", "/a,b", "/a$b", "/a*"] {
            assert!(check_path(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_driver_asks_of_glibc_is_found() {
        assert_eq!(newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_2.x"), Some(34));
        assert_eq!(newest_glibc(b"libc.so\0GLIBC_"), None);
    }

    #[test]
    fn the_driver_and_its_names_go_where_containers_see_them() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::at(home.path());
        let driver = home.path().join("built.so");
        fs::write(&driver, "x").unwrap();
        copy(&driver, &place).unwrap();
        assert_eq!(fs::read_to_string(home.path().join("vendors/telecl.icd")).unwrap(), "/opt/telecl/libtelecl.so\n");
        assert_eq!(fs::read_to_string(home.path().join("vendors-mnt/telecl.icd")).unwrap(), "/mnt/libtelecl.so\n");
        assert!(home.path().join("libtelecl.so").exists());
    }
}
