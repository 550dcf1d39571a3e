"""The table of the text models is made of the committed runs."""

import json

from benchmarks.reproductions import text


def test_the_table_averages_over_seeds(tmp_path):
    for seed, bits in enumerate((2.0, 3.0)):
        run = {
            "parameters": 1234,
            "epochs": 4,
            "validation/bits_per_character": 2.5,
            "test/bits_per_character": bits,
            "test/bits_of_frequencies": 4.5,
        }
        (tmp_path / f"lstm-seed{seed}.json").write_text(json.dumps(run))
        rows = "step,train/bits_per_character\n1,4\n2,1.5\n"
        (tmp_path / f"lstm-seed{seed}.csv").write_text(rows)
    assert text.table(tmp_path).splitlines()[2:] == [
        "| LSTM | 1,234 | 2 | 4 | 1.500 | 2.500 | 2.500 (2.000 to 3.000) |",
        "| frequencies of the characters |  |  |  |  |  | 4.500 |",
    ]
