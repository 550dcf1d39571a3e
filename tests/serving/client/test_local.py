"""`served` runs a server of an export folder for the duration of a block."""

import pytest

from serving.client import connect
from serving.errors import ServingError
from serving.local import served

pytestmark = pytest.mark.tf_only


def test_both_addresses_answer_until_the_end_of_the_block(exported, tools):
    raw = tools.observations(3)
    with served(exported, "tiny", "--enable_batching") as addresses:
        answers = []
        for address in addresses:
            with connect(address, "tiny", timeout=60) as client:
                answers.append(client.act(raw).tolist())
    assert answers[0] == answers[1]
    with connect(addresses[1], "tiny", retries=0) as client, pytest.raises(ServingError):
        client.act(raw)


def test_a_server_that_cannot_start_raises_and_logs_one_line(exported, tmp_path, capfd):
    path = tmp_path / "ssl.config"
    path.touch(mode=0o600)
    path.write_text('server_key: "none" server_cert: "none"')
    with (
        pytest.raises(ServingError, match="exit code 1"),
        served(exported, "tiny", f"--ssl_config_file={path}"),
    ):
        pass
    (line,) = (
        capfd.readouterr().err.strip().splitlines()
    )  # no warning about a coroutine that was never awaited
    assert line.startswith("serving.server: ") and str(path) in line
