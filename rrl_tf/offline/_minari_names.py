"""What names a data set of Minari, which must be there: an id, or the path of a folder."""

from __future__ import annotations

import os
import pathlib

from rrl_tf.errors import InvalidInput

RECORDINGS = "runs/datasets"
"""Where collect_dataset keeps what it records, unless it is told another place."""

MOST_PARTS = 3
"""Of ids on Minari's server: NAMESPACE/NAME-vN, with one part or two in front of the name."""

MOST_LISTED = 10


def is_minari_id(name: str) -> bool:
    """Whether Minari can name a data set so."""
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(name)
    except (ValueError, TypeError):  # TypeError: without a version
        return False
    return True


def check_missing(source: str, name: str) -> None:
    """Raises `InvalidInput` if what is no folder here need not be asked of Minari's server.

    Where there is no network, it takes half a minute to say so.

    Args:
        source: what errors call it.
        name: an id, or a path that is not there.
    """
    is_id = is_minari_id(name)
    if is_id and _is_minaris_own(name):
        return
    recorded = f"{RECORDINGS}/{name}"
    if is_id and os.path.isdir(recorded):
        raise InvalidInput(
            f"{source}: Minari has no such data set in $MINARI_DATASETS_PATH; what was recorded "
            f"under this id here is minari:{recorded}; received {name!r}"
        )
    if _looks_like_a_path(name):
        # Other servers than Minari's may have longer ids.
        may_be_id = is_id and not os.path.exists(pathlib.PurePath(name).parts[0])
        perhaps = f"; if it is an id, `minari download {name}` gets it" if may_be_id else ""
        raise InvalidInput(f"{source}: there is no folder {name!r}; {_beside(name)}{perhaps}")
    if not is_id:
        raise InvalidInput(
            f"{source}: there is no such folder, and an id is NAMESPACE/NAME-vN, as "
            f"mujoco/walker2d/medium-v0; received {name!r}"
        )


def _is_minaris_own(name: str) -> bool:
    """Whether it is in Minari's folder, or would be as an id and as a path alike."""
    from minari.storage import get_dataset_path

    try:
        place = get_dataset_path(name)  # it makes Minari's folder
    except OSError:
        return False
    return os.path.exists(place) or os.path.realpath(place) == os.path.realpath(name)


def _looks_like_a_path(name: str) -> bool:
    above = os.path.dirname(name)
    is_long = len(pathlib.PurePath(name).parts) > MOST_PARTS
    return name[0] in "./~" or is_long or (above != "" and os.path.isdir(above))


def _beside(name: str) -> str:
    """What the nearest folder above that is there holds: recordings, or folders of them."""
    folder = next(above for above in pathlib.Path(name).parents if os.path.isdir(above))
    held = sorted(
        {mark.parents[1].name for mark in folder.glob("*/data/metadata.json")}
        | {mark.parent.name for mark in folder.glob("*/namespace_metadata.json")}
    )
    where = f"the current folder, {os.getcwd()}," if folder == pathlib.Path() else str(folder)
    more = f" and {len(held) - MOST_LISTED} more" if len(held) > MOST_LISTED else ""
    return f"{where} holds {', '.join(held[:MOST_LISTED]) or 'no recording'}{more}"
