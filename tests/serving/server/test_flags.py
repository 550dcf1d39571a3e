"""Flags and their errors."""

import pytest

from serving.server import flags


def test_flags_of_tensorflow_model_server():
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
        (["--model_base_path=/m", "--port=8501", "--rest_api_port=8501"], "8501 for both"),
        (["--model_base_path=/m", "--enable_batching=perhaps"], "perhaps"),
        (["--model_base_path=/m", "--drain_seconds=-1"], "--drain_seconds must be at least 0"),
        (["--model_base_path=/m", "--file_system_poll_wait_seconds=nan"], "received nan"),
        (["--model_base_path=/m", "--model_name="], "--model_name"),
        (["--model_base_path=/m", "--num_processes=0"], "--num_processes"),
        (["--model_base_path=/m", "--grpc_channel_arguments=a=1,b"], "'b'"),
        (["--model_base_path=/m", "--use_alts_credentials"], "use --ssl_config_file"),
        ([], "one of --model_base_path, --model_config_file and --preset is required"),
        (["--model_base_path=/m", "--preset=doorkey-5x5"], "--preset cannot be combined with"),
    ],
)
def test_invalid_flag_is_a_one_line_error(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        flags.parse(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error


def test_channel_arguments_of_digits_are_ints():
    given = "--grpc_channel_arguments=grpc.max_connection_age_ms=2000,grpc.x=-1,grpc.name=a=b"
    parsed, _ = flags.parse(["--model_base_path=/m", given])
    assert parsed.channel_arguments == {
        "grpc.max_connection_age_ms": 2000,
        "grpc.x": -1,
        "grpc.name": "a=b",
    }


def test_config_file_with_the_base_path_of_the_docker_image():
    given = ["--model_base_path=/models/model", "--model_name=model", "--model_config_file=/f"]
    assert flags.parse(given)[0].model_config_file == "/f"


@pytest.mark.tf_only
def test_version_prints_that_of_tensorflow(capsys):
    with pytest.raises(SystemExit) as end:
        flags.parse(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("TensorFlow Library: 2.")


def test_preset_is_served_under_its_name(tmp_path):
    from rrl_tf.pretrained import FOLDER
    from serving.server.config_files import StartError
    from serving.server.versions import read_models

    [model] = read_models(flags.parse(["--preset=doorkey-5x5"])[0])
    assert (model.name, model.base_path) == ("doorkey-5x5", str(FOLDER / "doorkey-5x5" / "policy"))
    [model] = read_models(flags.parse(["--preset=doorkey-5x5", "--model_name=mine"])[0])
    assert model.name == "mine"
    with pytest.raises(StartError, match=f"one of .*doorkey-5x5.*received '{tmp_path}'"):
        read_models(flags.parse([f"--preset={tmp_path}"])[0])
