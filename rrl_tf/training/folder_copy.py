"""A copy of a run folder for the hosts that do not write to it."""

from __future__ import annotations

import atexit
import io
import pathlib
import shutil
import tarfile
import tempfile

from rrl_tf.training.run_folder import RunFolder


def packed(folder: RunFolder) -> bytes:
    """What a run goes on from, as a tar archive: configuration, log, outcome, newest checkpoint."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        files = [*folder.path.glob("*.json"), *folder.path.glob("*.csv")]
        if folder.model_file:
            files += folder.model_file.parent.iterdir()
        for file in files:
            if file != folder.model_file and not file.name.startswith("."):
                archive.add(file, file.relative_to(folder.path))
    return content.getvalue()


def unpacked(content: bytes) -> pathlib.Path:
    """The files in a folder of their own, which is removed when the process ends."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="rrl_tf-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(path, filter="data")
    return path
