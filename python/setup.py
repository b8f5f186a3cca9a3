"""The wheel of weft: the package, and below weft/native what `cmake --install` gives of a
build (WEFT_BUILD, else ../build-package): the program, libweftlua and the modules of both.
Without one the package is of Python alone, and uses what the system has.

Nothing in it is compiled against CPython, so the tag is py3-none-PLATFORM."""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("WEFT_BUILD", HERE.parent / "build-package")).resolve()
# What a C or Lua host needs, and what belongs into folders of the system.
LEFT_OUT = ["**/libweft.so.*", "**/lua", "share/bash-completion", "share/fish", "share/zsh"]


def native() -> bool:
    return (BUILD / "cmake_install.cmake").exists()


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
