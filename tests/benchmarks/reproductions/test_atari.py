"""The tables of Atari, from results made up here, and what random play scores."""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.tf_only


def test_the_table_says_what_the_files_say(tmp_path):
    from benchmarks.reproductions import atari

    for seed, score in ((0, 700.0), (1, 500.0)):
        summary = {
            "step": 100_000,
            "parameters": 57_199,
            "cpu_minutes": 80.4,
            "scores": {"0.0": score, "0.05": 650.0},
        }
        (tmp_path / f"atari-seed{seed}.json").write_text(json.dumps(summary))
        log = f"step,eval/return\n25000,300\n50000,{score}\n"
        (tmp_path / f"atari-seed{seed}.csv").write_text(log)
    [row] = atari.table(tmp_path).splitlines()[2:]
    assert row == "| relational | 57,199 | 2 | 100,000 | 600 (500 to 700) | 650 | 80 |"
    [label] = atari.curves(tmp_path).axes[0].get_legend_handles_labels()[1]
    assert label.startswith("relational")


def test_random_play_is_told_of_all_games(monkeypatch):
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from benchmarks.reproductions import atari_random
    from rrl_tf.agents import Evaluation

    def play(task, resets, seed):
        reward = np.array([100.0 * reset["seed"] for reset in resets])
        return Evaluation(None, np.full(len(resets), 500 + seed), reward, None)

    monkeypatch.setattr(atari_random, "play", play)
    [row] = atari_random.main(atari_random.Config(games=3, at_once=2)).rows
    assert (row["games"], row["score, mean"], row["median"]) == ("3", "100.0", "100")
    assert row["its standard error"] == f"{100 / 3**0.5:.1f}"
    assert row["steps, mean"] == f"{(500 + 500 + 502) / 3:.0f}"


def test_random_play_ends_with_the_game():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from benchmarks.reproductions.atari_random import play
    from rrl_tf.envs import atari_task

    played = play(atari_task(), [{"seed": 1}, {"seed": 2}], seed=3)
    assert (played.reward % 10 == 0).all() and (played.reward > 0).all()
    assert (played.length > 100).all() and played.success is None
