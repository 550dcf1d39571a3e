"""The command line: the names of tensorflow_model_server, and one clear line for each mistake."""

import pytest

from serving import flags


def test_flags_are_read_as_the_stock_server_reads_them():
    given = "--model_base_path=/m --port 9000 --enable_batching --grpc_max_threads=4 "
    given += "--enable_model_warmup=false --file_system_poll_wait_seconds=0"
    parsed, ignored = flags.parse(given.split())
    assert (parsed.port, parsed.rest_api_port, parsed.model_name) == (9000, 0, "default")
    assert parsed.enable_batching and not parsed.enable_model_warmup
    assert parsed.file_system_poll_wait_seconds == 0 and parsed.host == "127.0.0.1"
    assert ignored == ["grpc_max_threads"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model_base_path=/m", "--no_such_flag=1"], "--no_such_flag"),
        (["--model_base_path=/m", "--model_nam=x"], "--model_nam"),
        (["--model_base_path=/m", "--port=many"], "many"),
        (["--model_base_path=/m", "--port=70000"], "70000"),
        (["--model_base_path=/m", "--port=8501", "--rest_api_port=8501"], "both 8501"),
        (["--model_base_path=/m", "--enable_batching=perhaps"], "perhaps"),
        (["--model_base_path=/m", "--drain_seconds=-1"], "must not be negative"),
        (["--model_base_path=/m", "--model_name="], "--model_name"),
        (["--model_base_path=/m", "--model_config_file=/f"], "either"),
        ([], "either --model_base_path or"),
    ],
)
def test_a_mistake_is_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        flags.parse(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error
