"""What a run tells of levels that it has not trained on."""

import types

import pytest

from rrl_tf.agents.agent_evaluation import untrained_scores

SUCCESSES = (0.9, 0.5, 0.25)


def played(calls):
    """A player whose success is that of `SUCCESSES`, less with random actions."""

    def play(level, epsilon):
        calls.append((level, epsilon))
        success = SUCCESSES[level] - epsilon
        return types.SimpleNamespace(summary=lambda: {"return": success, "success": success})

    return play


@pytest.mark.parametrize("level", [1, 2])
def test_the_next_level_and_the_last_are_told_of(level):
    calls = []
    told = untrained_scores(played(calls), level, len(SUCCESSES))
    assert told == {
        "zero_shot/success": SUCCESSES[level],
        "zero_shot/success_epsilon_0.05": pytest.approx(SUCCESSES[level] - 0.05),
        "zero_shot/level": level + 1,
        "zero_shot/last_success": SUCCESSES[-1],
    }
    assert len(calls) == len(set(calls))  # no level is played twice
