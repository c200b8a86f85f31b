"""Warn if an extension module is older than its model. An editable install puts this file into site-packages.

mlaot need not be installed there. Every start of Python runs this file, so it imports little, and only on demand.
"""

import sys


class Watch:
    """A finder that finds nothing, but checks the model's files when one of ``modules`` is imported."""

    def __init__(self, modules: set[str], digests: dict[str, str], command: str) -> None:
        self.modules = modules
        self.digests = digests
        self.command = command

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Warn if the digest of a file has changed since the build read it."""
        if fullname in self.modules:
            import warnings

            file = next(filter(self.is_changed, self.digests), None)
            if file:
                text = f"{fullname} is older than {file}, from which it was made; mend it with: {self.command}"
                warnings.warn(text, stacklevel=2)

    def is_changed(self, file: str) -> bool:
        """Tell whether the file was edited or deleted."""
        import hashlib

        try:
            with open(file, "rb") as opened:
                return hashlib.file_digest(opened, "sha256").hexdigest() != self.digests[file]
        except OSError:
            return True


def watch(modules: list[str], digests: dict[str, str], command: str) -> None:
    """Watch imports in this process."""
    sys.meta_path.insert(0, Watch(set(modules), digests, command))
