"""Packages of other releases of Debian, unpacked beside the system's own."""

import pathlib
import shutil
import subprocess

SOURCE = "deb [check-valid-until=no signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {archive} {release} main\n"


def archive():
    """Where this system has its own packages from: the same place has those of other releases."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    known = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    return next(place for place in known if place.rstrip("/").endswith("/debian"))


def unpack(place, release, *packages):
    """Unpacks packages of a release into a new directory, with lists of packages that are kept apart from the system's."""
    place = pathlib.Path(place)
    # An earlier attempt may have stopped half-way.
    shutil.rmtree(place, ignore_errors=True)
    for directory in ["apt/lists/partial", "apt/cache/archives/partial"]:
        (place / directory).mkdir(parents=True)
    (place / "apt/sources.list").write_text(SOURCE.format(archive=archive(), release=release))
    apt = [
        "apt-get", "-q", "-o", f"Dir::Etc::sourcelist={place}/apt/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", "Dir::State::status=/dev/null", "-o", f"Dir::State::lists={place}/apt/lists", "-o", f"Dir::Cache={place}/apt/cache", "-o", "Acquire::Retries=3",
        "-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root",
    ]
    subprocess.run([*apt, "update"], check=True, timeout=180, stdout=subprocess.DEVNULL)
    subprocess.run([*apt, "download", *packages], check=True, timeout=180, stdout=subprocess.DEVNULL, cwd=place / "apt")
    for package in (place / "apt").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(place)], check=True, timeout=60)
    shutil.rmtree(place / "apt")
