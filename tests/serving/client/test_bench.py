"""The load tool, on a small scale."""

import asyncio
import socket

import pytest

from serving import bench

pytestmark = pytest.mark.tf_only


@pytest.mark.parametrize("scheme", ["grpc", "http"])
@pytest.mark.parametrize("rate", [None, "200"])
def test_prints_a_row_for_each_number_of_clients(server, capsys, scheme, rate):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    arguments = [f"--address={scheme}://127.0.0.1:{port}", "--model=tiny", "--seconds=0.3"]
    arguments += ["--clients=1,4", "--batch=2", "--signature=act"]
    assert bench.main(arguments + (["--rate", rate] if rate else [])) == 0
    header, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == list(bench.COLUMNS)
    for row, clients in zip(rows, (1, 4)):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:2] == [str(clients), "2"] and cells[6] == "0"
        assert float(cells[3]) == pytest.approx(2 * float(cells[2]), abs=2)
        assert 0 < float(cells[4]) <= float(cells[5])


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_each_client_plays_a_sequence(recurrent, tools, capsys, scheme):
    with tools.serve(recurrent, max_sequences=3) as server:
        port = server.grpc_port if scheme == "grpc" else server.rest_port
        arguments = [f"--address={scheme}://127.0.0.1:{port}", "--model=tiny", "--seconds=0.2"]
        arguments += ["--clients=3", "--signature=act"]
        for more in (["--sequences"], ["--sequences"], []):  # the first run ends its sequences
            assert bench.main([*arguments, *more]) == 0
            said = capsys.readouterr()
            assert float(said.out.splitlines()[-1].split("|")[3]) > 0 and not said.err


def test_an_error_is_one_line(server, tools, capsys):
    address = f"--address=http://127.0.0.1:{server.rest_port}"
    assert bench.main([address, "--model=tiny", "--signature=none"]) == 1
    assert bench.main([address, "--model=other"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "received 'none'" in lines[0] and "other" in lines[1]


@pytest.mark.parametrize("flag", ["--clients=a", "--clients=0", "--rate=0", "--seconds=nan"])
def test_an_invalid_flag_shows_its_value(flag, capsys):
    with pytest.raises(SystemExit) as end:
        bench.main([flag])
    assert end.value.code == 2 and "received " in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_the_first_failure_is_printed(server, capsys, scheme):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    arguments = [f"--address={scheme}://127.0.0.1:{port}", "--model=tiny", "--seconds=0.2"]
    arguments += ["--clients=1", "--batch=4097"]
    assert bench.main(arguments) == 0
    said = capsys.readouterr()
    assert "nan" in said.out and "4096 rows; received 4097" in said.err


def test_a_mix_prints_a_row_for_each_kind_of_clients(server, capsys):
    addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
    mix = f"--mix=2x1@{addresses[0]},3x40@{addresses[1]}"
    assert bench.main([mix, "--model=tiny", "--signature=act", "--seconds=0.3"]) == 0
    header, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == list(bench.MIX_COLUMNS)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["2 grpc x 1 rows", "3 http x 40 rows"]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 and row[6] == "0" for row in cells)
    for wrong in ("2@grpc://x:1", "0x1@grpc://x:1", "2x1@https://x:1", "2x1@grpc://x"):
        assert bench.main([f"--mix={wrong}"]) == 1
        said = capsys.readouterr().err
        assert "host:port; received" in said and wrong.partition("@")[2] in said
    assert bench.main([mix, "--rate=3"]) == 1
    assert "`--mix` cannot be combined with `--rate`" in capsys.readouterr().err


def test_a_server_on_ipv6_is_measured(exported, tools, capsys):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with tools.serve(exported, host="::1") as server:
        for address in (f"grpc://[::1]:{server.grpc_port}", f"http://[::1]:{server.rest_port}"):
            arguments = [f"--address={address}", "--model=tiny", "--clients=1", "--seconds=0.1"]
            assert bench.main(arguments) == 0
            said = capsys.readouterr()
            assert float(said.out.splitlines()[-1].split("|")[3]) > 0 and not said.err


def test_a_server_that_stops_keeps_the_measurements():

    async def scenario():
        async def answer(reader, writer):
            for _ in range(5):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            gone.close()
            writer.close()

        gone = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = gone.sockets[0].getsockname()[1]
        return await bench.load(f"http://127.0.0.1:{port}", "tiny", b"", 1, 1, 0.1)

    result = asyncio.run(scenario())
    assert len(result.latencies) == 4 and result.failed and result.first_failure
