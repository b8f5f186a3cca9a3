"""The wheel of weft: the package, and below weft/native what `cmake --install` gives of a
build (WEFT_BUILD, else ../build-package): the program, libweftlua and the modules of both.
Without one the package is of Python alone, and uses what the system has.

Nothing in it is compiled against CPython, so the tag is py3-none-PLATFORM."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterable, Set

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("WEFT_BUILD", HERE.parent / "build-package")).resolve()
# What a C or Lua host needs, and what belongs into folders of the system.
LEFT_OUT = ["**/libweft.so.*", "**/lua", "share/bash-completion", "share/fish", "share/zsh"]
# Libraries that every system of the wheel's tag has.
OF_THE_SYSTEM = ["libc6", "libgcc-s1", "libstdc++6"]


def native() -> bool:
    return (BUILD / "cmake_install.cmake").exists()


def linked(files: Iterable[Path]) -> Set[str]:
    """The libraries that these files link, and those that these link, but for the C library."""
    found = set()
    for file in files:
        out = subprocess.run(["ldd", str(file)], stdout=subprocess.PIPE, check=True).stdout
        found |= set(re.findall(r"=> (/\S+)", out.decode()))
    return found


def add_licences(to: Path) -> None:
    """The copyright of each Debian package whose library is put into the wheel beside weft."""
    files = [to / "bin" / "weft", *to.rglob("*.so"), *to.rglob("*.so.*")]
    for library in sorted(linked(files)):
        for name in (library, os.path.realpath(library), library.replace("/lib/", "/usr/lib/", 1)):
            owner = subprocess.run(["dpkg-query", "-S", name], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, check=False).stdout.decode()
            package = owner.partition(":")[0]
            text = Path("/usr/share/doc", package, "copyright")
            if package and package not in OF_THE_SYSTEM and text.exists():
                (to / "share" / "licenses").mkdir(parents=True, exist_ok=True)
                shutil.copyfile(text, to / "share" / "licenses" / package)
                break


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not native():
            return
        to = Path(self.build_lib, "weft", "native").resolve()
        shutil.rmtree(to, ignore_errors=True)
        for part in ("program", "library"):
            subprocess.run(
                ["cmake", "--install", str(BUILD), "--component", part, "--prefix", str(to),
                 "--strip"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        for pattern in LEFT_OUT:
            for path in list(to.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        # A wheel has no links: the library is there once, under the name that is linked.
        for link in [path for path in to.rglob("*.so*") if path.is_symlink()]:
            target = link.resolve()
            link.unlink()
            target.rename(link)
        if shutil.which("dpkg-query"):
            add_licences(to)


class Wheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not native()

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class Native(Distribution):
    def has_ext_modules(self) -> bool:
        return native()


setup(distclass=Native, cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel})
