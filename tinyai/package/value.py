"""A C package: its files and what is known of it."""

from __future__ import annotations

import functools
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tinyai.package.report import PackageReport
from tinyai.package.write import write_folder, write_whole
from tinyai.report.page import Page


@dataclass(frozen=True, eq=False)
class Package:
    """A network as C.

    - ``name``: the C identifier that all of its symbols and files begin with.
    - ``files``: their content by name; the same network gives the same bytes.
    - ``report``: sizes in bytes, layers, and where each tensor lives.
    - ``page``: the same and more to look at; ``page.write(path)`` writes it as HTML. The first time
      it compiles the package, for the size of the layers' machine code.
    """

    name: str
    files: Mapping[str, bytes]
    report: PackageReport
    _page: Callable[[], Page]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(self.files)))

    @functools.cached_property
    def page(self) -> Page:
        return self._page()

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write the files into a folder, which is made if it is not there: all of them or, where
        something goes wrong, none. Files of an earlier package are replaced; other ones of the same
        names are an ``OptionError``, and stay."""
        return write_folder(Path(folder), self.files)

    def write_tar(self, path: str | os.PathLike[str]) -> Path:
        """Write the files as a tar archive with one folder, ``name``; the same bytes for the same
        package."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in sorted(self.files.items()):
                member = tarfile.TarInfo(f"{self.name}/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return write_whole(Path(path), content.getvalue())
