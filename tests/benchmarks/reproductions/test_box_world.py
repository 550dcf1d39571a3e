"""The tables of Box-World, from results made up here."""

import json

import pytest

pytestmark = pytest.mark.tf_only


def test_the_table_says_what_the_files_say(tmp_path):
    from benchmarks.reproductions import box_world

    for seed, share in ((0, 0.9), (1, 0.7)):
        told = dict.fromkeys(box_world.KINDS, share)
        told |= {f"{kind}, ε = 0.05": 1.0 for kind in box_world.KINDS}
        summary = {
            "step": 600_064,
            "parameters": 14_569,
            "cpu_minutes": 20.4,
            "generalization": {"step": 600_064, **told},
        }
        (tmp_path / f"fast-seed{seed}.json").write_text(json.dumps(summary))
        log = f"step,eval/success\n20000,0.5\n40000,{share}\n"
        (tmp_path / f"fast-seed{seed}.csv").write_text(log)
    [row] = box_world.table(tmp_path).splitlines()[2:]
    share = "80.0 % (70.0 to 90.0)"
    assert row == (
        "| relational, ours | 14,569 | 2 | 600,064 " + 3 * f"| {share} | 100.0 % " + "| 20 |"
    )
    [label] = box_world.curves(tmp_path).axes[0].get_legend_handles_labels()[1]
    assert label.startswith("relational, ours")
