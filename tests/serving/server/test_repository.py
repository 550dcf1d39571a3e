"""Which versions are loaded, swapped and kept."""

import asyncio
import os
import shutil

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.errors import ServingError
from serving.server.flags import Flags
from serving.server.repository import Repository, State
from serving.server.versions import wanted_versions

pytestmark = pytest.mark.tf_only
ONE_TRY = Flags(max_num_load_retries=0)
QUICK = Flags(max_num_load_retries=0, enable_model_warmup=False)


def config_for(base, policy="", name="tiny", labels=""):
    text = f'name: "{name}" base_path: "{base}" model_platform: "tensorflow" {policy} {labels}'
    return text_format.Parse(text, model_server_config_pb2.ModelConfig())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", [12]),
        ("model_version_policy { latest { num_versions: 2 } }", [9, 12]),
        ("model_version_policy { all {} }", [1, 9, 12]),
        ("model_version_policy { specific { versions: 1 versions: 5 } }", [1]),
    ],
)
def test_policy_chooses_among_whole_integers(tmp_path, policy, expected):
    for name in ("1", "9", "00012", "x3", "3x", "-4", "4.0", ".export-7", str(1 << 63), "٣"):
        (tmp_path / name).mkdir()
    (tmp_path / "15").write_text("notes")
    assert sorted(wanted_versions(config_for(tmp_path, policy))) == expected
    assert wanted_versions(config_for(tmp_path / "missing")) is None


def add_version(exported, base, name):
    """Copy the policy to a temporary folder and rename it, as an export does."""
    shutil.copytree(exported / "1", base / ".aside")
    os.rename(base / ".aside", base / name)


def scenario(function, options=QUICK):
    async def main():
        repository = Repository(options)
        try:
            await asyncio.wait_for(function(repository), 60)
        finally:
            await repository.close()

    asyncio.run(main())


def states(repository):
    return {version.number: version.state for version in repository.status("tiny")}


async def settle(repository):
    await repository.poll()
    while State.UNLOADING in states(repository).values():
        await asyncio.sleep(0.01)


def test_swap_keeps_a_version_with_requests_in_progress(tmp_path, exported):
    async def steps(repository):
        add_version(exported, tmp_path, "1")
        await repository.configure([config_for(tmp_path)])
        with repository.use("tiny") as old:
            assert old.version == 1
            add_version(exported, tmp_path, "2")
            await repository.poll()
            with repository.use("tiny") as new:
                assert new.version == 2
            assert states(repository) == {2: State.AVAILABLE, 1: State.UNLOADING}
            gone = pytest.raises(ServingError, match=r"Specific\(tiny, 1\)")
            with gone, repository.use("tiny", version=1):
                pass
            assert old.signature("act")  # its session is still open
        await settle(repository)
        assert states(repository) == {2: State.AVAILABLE, 1: State.END}
        shutil.rmtree(tmp_path / "2")
        await settle(repository)
        assert states(repository) == {2: State.END, 1: State.AVAILABLE}
        shutil.rmtree(tmp_path / "1")
        await settle(repository)
        with pytest.raises(ServingError, match=r"Latest\(tiny\)"), repository.use("tiny"):
            pass

    scenario(steps)


def test_status_forgets_old_versions(tmp_path, exported, monkeypatch):
    monkeypatch.setattr("serving.server.repository._REMEMBERED", 2)

    async def steps(repository):
        for number in range(1, 5):
            add_version(exported, tmp_path, str(number))
            await (settle(repository) if number > 1 else start(repository))
            for old in tmp_path.iterdir():
                if int(old.name) < number:
                    shutil.rmtree(old)
            await settle(repository)
        await settle(repository)
        assert states(repository) == {4: State.AVAILABLE} | dict.fromkeys((3, 2), State.END)

    async def start(repository):
        await repository.configure([config_for(tmp_path)])

    scenario(steps)


@pytest.mark.parametrize("damage", ["empty", "no_weights", "warmup", "unreadable"])
def test_a_broken_version_leaves_the_old_one(tmp_path, exported, damage):
    async def steps(repository):
        add_version(exported, tmp_path, "1")
        await repository.configure([config_for(tmp_path)])
        shutil.copytree(exported / "1", tmp_path / ".aside")
        if damage == "empty":
            shutil.rmtree(tmp_path / ".aside")
            (tmp_path / ".aside").mkdir()
        elif damage == "no_weights":
            shutil.rmtree(tmp_path / ".aside" / "variables")
        elif damage == "warmup":
            path = tmp_path / ".aside" / "assets.extra" / "tf_serving_warmup_requests"
            path.write_bytes(path.read_bytes()[:-3])
        else:
            (tmp_path / ".aside" / "saved_model.pb").write_bytes(b"\x00not a proto")
        os.rename(tmp_path / ".aside", tmp_path / "2")
        await settle(repository)
        assert states(repository) == {2: State.END, 1: State.AVAILABLE}
        (failed,) = repository.status("tiny", 2)
        assert failed.error.message
        with repository.use("tiny") as servable:
            assert servable.version == 1
        add_version(exported, tmp_path, "3")
        await settle(repository)
        assert states(repository) == {3: State.AVAILABLE, 2: State.END, 1: State.END}

    scenario(steps, ONE_TRY)


def test_failed_load_is_retried(tmp_path, exported):
    async def steps(repository):
        add_version(exported, tmp_path, "1")
        await repository.configure([config_for(tmp_path)])
        (tmp_path / "2").mkdir()
        await repository.poll()
        assert states(repository) == {2: State.LOADING, 1: State.AVAILABLE}
        shutil.rmtree(tmp_path / "2")
        add_version(exported, tmp_path, "2")
        await asyncio.sleep(0.06)
        await settle(repository)
        assert states(repository) == {2: State.AVAILABLE, 1: State.END}
        assert repository.status("tiny", 2)[0].error is None

    scenario(
        steps,
        Flags(max_num_load_retries=1, load_retry_interval_micros=50_000, enable_model_warmup=False),
    )


def test_replaced_version_is_loaded_at_once(tmp_path, exported):

    async def steps(repository):
        add_version(exported, tmp_path, "1")
        await repository.configure([config_for(tmp_path)])
        (tmp_path / "2").mkdir()
        await repository.poll()
        (tmp_path / "2").rmdir()
        await repository.poll()
        assert states(repository) == {2: State.END, 1: State.AVAILABLE}
        add_version(exported, tmp_path, "2")
        await settle(repository)
        assert states(repository) == {2: State.AVAILABLE, 1: State.END}

    scenario(steps, Flags(max_num_load_retries=1, enable_model_warmup=False))


def test_configuration_replaces_the_list_of_models(tmp_path, exported):
    async def steps(repository):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            add_version(exported, tmp_path / name, "1")
        add_version(exported, tmp_path / "b", "2")
        a, b = (config_for(tmp_path / name, name=name) for name in "ab")
        await repository.configure([a])
        await repository.configure([b])
        assert list(repository.models) == ["b"]
        with pytest.raises(ServingError, match=r"Latest\(a\)"), repository.use("a"):
            pass
        both = "model_version_policy { all {} }"
        labels = 'version_labels { key: "stable" value: 1 }'
        b = config_for(tmp_path / "b", both, "b", labels)
        await repository.configure([b])
        with repository.use("b", label="stable") as servable:
            assert servable.version == 1
        with pytest.raises(ServingError) as refusal, repository.use("b", label="canary"):
            pass
        assert refusal.value.code == "INVALID_ARGUMENT"
        b.version_labels["canary"] = 7
        with pytest.raises(ServingError) as refusal:
            await repository.configure([b])
        assert refusal.value.code == "FAILED_PRECONDITION"

    scenario(steps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base_path: "/x" model_platform: "tensorflow"', "no name"),
        ('name: "m" base_path: "x" model_platform: "tensorflow"', "absolute"),
        ('name: "m" base_path: "/x\\000y" model_platform: "tensorflow"', "absolute"),
        ('name: "m" base_path: "/x" model_platform: "other"', "other"),
        ('name: "m" base_path: "/x"', "model_platform"),
    ],
)
def test_invalid_model_config_changes_nothing(tmp_path, exported, text, message):
    async def steps(repository):
        add_version(exported, tmp_path, "1")
        await repository.configure([config_for(tmp_path)])
        bad = text_format.Parse(text, model_server_config_pb2.ModelConfig())
        for configs in ([bad], [config_for(tmp_path), bad]):
            with pytest.raises(ServingError, match=message):
                await repository.configure(configs)
        with pytest.raises(ServingError, match="twice"):
            await repository.configure([config_for(tmp_path)] * 2)
        assert list(repository.models) == ["tiny"]

    scenario(steps)


@pytest.mark.parametrize("trouble", ["no folder", "no version", "broken", "cancelled"])
def test_new_model_that_cannot_be_loaded_leaves_the_old_list(tmp_path, exported, trouble):
    async def steps(repository):
        (tmp_path / "old").mkdir()
        add_version(exported, tmp_path / "old", "1")
        before = config_for(tmp_path / "old", "", "old", 'version_labels { key: "a" value: 1 }')
        await repository.configure([before])
        (tmp_path / "new").mkdir()
        if trouble in ("broken", "cancelled"):
            (tmp_path / "new" / "7").mkdir()
        missing = tmp_path / ("missing" if trouble == "no folder" else "new")
        after = [config_for(exported, "", "other"), config_for(missing, "", "new")]
        trying = asyncio.ensure_future(repository.configure(after, waits=trouble == "cancelled"))
        if trouble == "cancelled":
            await asyncio.wait([trying], timeout=0.5)
            trying.cancel()
        await asyncio.wait([trying])
        if trouble != "cancelled":
            code = "UNKNOWN" if trouble == "broken" else "NOT_FOUND"
            assert trying.exception().code == code
        assert list(repository.models) == ["old"] and repository.models["old"].config == before
        with repository.use("old", label="a") as servable:
            assert servable.version == 1

    # The retry would follow after a minute; the test does not wait for it.
    scenario(steps, Flags(max_num_load_retries=1, enable_model_warmup=False))


async def seen_during(change, repository):
    """Return all (ready, version directory) until `change` ends, and its exception."""
    trying, seen = asyncio.ensure_future(change), set()
    while not trying.done():
        with repository.use("tiny") as servable:
            seen.add((repository.ready, servable.directory))
        await asyncio.sleep(0.001)
    return seen, trying.exception()


def test_label_on_an_unavailable_version_is_refused_and_the_list_applies(tmp_path, exported):
    async def steps(repository):
        for number in "12":
            add_version(exported, tmp_path, number)
        first, second = (
            config_for(tmp_path, f"model_version_policy {{ specific {{ versions: {number} }} }}")
            for number in (1, 2)
        )
        await repository.configure([first])
        second.version_labels["stable"] = 2
        second.version_labels["canary"] = 9
        seen, error = await seen_during(repository.configure([second]), repository)
        assert error.code == "FAILED_PRECONDITION" and all(ready for ready, _ in seen)
        assert repository.models["tiny"].labels == {}
        await settle(repository)
        assert states(repository) == {2: State.AVAILABLE, 1: State.END}
        second.version_labels.pop("canary")
        await repository.configure([second])
        assert repository.models["tiny"].labels == {"stable": 2}

    scenario(steps)


def test_model_with_another_base_path_is_a_new_model(tmp_path, exported):

    async def steps(repository):
        for name in ("old/1", "old/3", "new/1", "broken/2"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            add_version(exported, tmp_path, name)
        (tmp_path / "broken" / "2" / "saved_model.pb").write_bytes(b"half")
        all_of = "model_version_policy { all {} }"
        old, new, broken = (config_for(tmp_path / n, all_of) for n in ("old", "new", "broken"))
        await repository.configure([old])
        seen, error = await seen_during(repository.configure([broken]), repository)
        assert error.code == "UNKNOWN" and seen == {(True, tmp_path / "old" / "3")}
        with repository.use("tiny", 1) as used:
            seen, error = await seen_during(repository.configure([new]), repository)
            assert error is None
            assert seen <= {(True, tmp_path / name) for name in ("old/3", "new/1")}
            with repository.use("tiny") as servable:
                assert servable.directory == tmp_path / "new" / "1"
            assert used.directory == tmp_path / "old" / "1" and used.signature("act")
        await settle(repository)
        assert states(repository) == {1: State.AVAILABLE}

    scenario(steps)


def test_start_waits_for_a_first_version(tmp_path, exported):
    async def steps(repository):
        starting = asyncio.ensure_future(repository.configure([config_for(tmp_path)], waits=True))
        await asyncio.wait([starting], timeout=0.2)
        assert not starting.done()
        add_version(exported, tmp_path, "1")
        await starting
        assert repository.ready

    scenario(steps)
