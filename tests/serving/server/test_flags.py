"""Flags and their errors."""

from pathlib import Path

import pytest

import rrl_tf
from serving.server import flags


def test_flags_of_tensorflow_model_server():
    given = "--model_base_path=/m --port 9000 --enable_batching --grpc_max_threads=4 "
    given += "--enable_model_warmup=false --file_system_poll_wait_seconds=0"
    parsed, warnings = flags.parse(given.split())
    assert (parsed.port, parsed.rest_api_port, parsed.model_name) == (9000, 0, "default")
    assert parsed.enable_batching and not parsed.enable_model_warmup
    assert parsed.file_system_poll_wait_seconds == 0 and parsed.host == "127.0.0.1"
    assert warnings == ["--grpc_max_threads has no effect in this server"]


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
        (["--model_base_path=/m", "--grpc_channel_arguments=a=9999999999"], "32 bits"),
        (["--model_base_path=/m", "--use_alts_credentials"], "use --ssl_config_file"),
        (["--model_base_path=/m", "--batching_parameters_file=/b"], "needs --enable_batching"),
        (
            [
                "--model_base_path=/m",
                *(f"--tensorflow_{k}_parallelism=2" for k in ("session", "intra_op", "inter_op")),
            ],
            "--tensorflow_session_parallelism cannot be combined",
        ),
        (
            ["--model_base_path=/m", "--log_format=xml"],
            "--log_format must be text or json; received 'xml'",
        ),
        (
            ["--model_base_path=/m", "--sequence_overflow=drop"],
            "must be refuse or evict_oldest; received 'drop'",
        ),
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


# The flags in tensorflow_model_server's main.cc, with a value for each of them.
_MODEL_SERVER_FLAGS = {
    "port": "9000",
    "grpc_socket_path": "/s",
    "rest_api_port": "9001",
    "rest_api_num_threads": "8",
    "rest_api_timeout_in_ms": "0",
    "rest_api_enable_cors_support": "true",
    "enable_batching": "true",
    "allow_version_labels_for_unavailable_models": "true",
    "batching_parameters_file": "/b",
    "enable_per_model_batching_parameters": "true",
    "model_config_file": "/c",
    "model_config_file_poll_wait_seconds": "2",
    "model_name": "m",
    "model_base_path": "/m",
    "num_load_threads": "2",
    "num_unload_threads": "2",
    "max_num_load_retries": "3",
    "load_retry_interval_micros": "-1",
    "file_system_poll_wait_seconds": "2",
    "flush_filesystem_caches": "false",
    "tensorflow_session_parallelism": "2",
    "tensorflow_session_config_file": "/t",
    "tensorflow_intra_op_parallelism": "2",
    "tensorflow_inter_op_parallelism": "0",
    "use_alts_credentials": "false",
    "ssl_config_file": "/k",
    "platform_config_file": "/p",
    "per_process_gpu_memory_fraction": "0.5",
    "saved_model_tags": "serve,gpu",
    "grpc_channel_arguments": "grpc.max_connection_age_ms=2000",
    "grpc_max_threads": "4",
    "enable_model_warmup": "true",
    "num_request_iterations_for_warmup": "-1",
    "monitoring_config_file": "/o",
    "remove_unused_fields_from_bundle_metagraph": "true",
    "prefer_tflite_model": "true",
    "num_tflite_pools": "2",
    "num_tflite_interpreters_per_pool": "2",
    "enable_signature_method_name_check": "true",
    "xla_cpu_compilation_enabled": "true",
    "xla_gpu_compilation_enabled": "true",
    "enable_profiler": "false",
    "thread_pool_factory_config_file": "/f",
    "mixed_precision": "bfloat16",
    "skip_initialize_tpu": "true",
    "enable_grpc_healthcheck_service": "true",
    "enable_serialization_as_tensor_content": "true",
}


def test_every_flag_of_tensorflow_model_server_is_known():
    """Each flag has an effect or a warning, and a row or a mention in the documentation."""
    parsed, warnings = flags.parse([f"--{n}={value}" for n, value in _MODEL_SERVER_FLAGS.items()])
    warned = {text.split()[0].removeprefix("--") for text in warnings}
    known = vars(parsed).keys()
    assert known.isdisjoint(warned)
    assert known | warned | {"use_alts_credentials"} >= _MODEL_SERVER_FLAGS.keys()
    for name in known & _MODEL_SERVER_FLAGS.keys():
        value = getattr(parsed, name)
        assert value == type(value)(
            {"true": 1, "false": 0}.get(_MODEL_SERVER_FLAGS[name], _MODEL_SERVER_FLAGS[name])
        )
    page = (Path(__file__).parents[3] / "docs" / "reference" / "server.md").read_text()
    assert [name for name in _MODEL_SERVER_FLAGS if f"`--{name}`" not in page] == []


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ("--monitoring_config_file=/m", "--monitoring_config_file has no effect without --rest"),
        ("--rest_api_enable_cors_support", "effect without --rest_api_port"),
        ("--enable_per_model_batching_parameters", "effect without --enable_batching"),
        ("--model_config_file_poll_wait_seconds=1", "effect without --model_config_file"),
        (
            "--num_request_iterations_for_warmup=2 --enable_model_warmup=false",
            "effect without --enable_model_warmup",
        ),
    ],
)
def test_a_flag_that_needs_another_one_is_a_warning(arguments, warning):
    _, [said] = flags.parse(["--model_base_path=/m", *arguments.split()])
    assert warning in said


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
    shown = capsys.readouterr().out
    assert end.value.code == 0 and shown.startswith("TensorFlow Library: 2.")
    assert shown.strip().endswith(f"(rrl_tf {rrl_tf.__version__})")


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
