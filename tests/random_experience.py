"""Random episodes for the replay tests, and brute-force versions of the expected results."""

import numpy as np


def play(replay, steps, num_envs, seed, ends=0.2):
    """Add random episodes with unique numbers as observations; return the trajectory."""
    rng = np.random.default_rng(seed)
    clock = 0
    current = np.arange(num_envs)
    trajectory = []
    for _ in range(steps):
        clock += num_envs
        after = clock + np.arange(num_envs)
        done = rng.random(num_envs) < ends
        terminated = done & (rng.random(num_envs) < 0.5)
        step = {
            "observation_t": current.astype("int64")[:, None],
            "action_t": rng.integers(5, size=num_envs),
            "reward_t": rng.normal(size=num_envs),
            "terminated": terminated,
            "truncated": done & ~terminated,
            "observation_tp1": after.astype("int64")[:, None],
        }
        replay.add(**step)
        trajectory.append(step)
        # A new episode starts with a negative observation, from which no target may bootstrap.
        current = np.where(done, -after, after)
    return trajectory


def expected_transitions(trajectory, n, discount, num_envs):
    """Return all complete n-step transitions, computed from the definition."""
    transitions = {}
    for env in range(num_envs):
        for start, step in enumerate(trajectory):
            total, k, done = 0.0, 0, False
            while k < n and start + k < len(trajectory) and not done:
                now = trajectory[start + k]
                total += discount**k * now["reward_t"][env]
                done = now["terminated"][env] or now["truncated"][env]
                k += 1
            if k < n and not done:
                continue
            last = trajectory[start + k - 1]
            bootstrap = 0.0 if last["terminated"][env] else discount**k
            transitions[int(step["observation_t"][env, 0])] = (
                int(step["action_t"][env]),
                total,
                bootstrap,
                int(last["observation_tp1"][env, 0]),
            )
    return transitions


def observed_returns(trajectory, discount, num_envs):
    """Return observation -> return until the termination, -inf if the episode is not terminated."""
    expected = {}
    for env in range(num_envs):
        value, known = 0.0, False
        for step in reversed(trajectory):
            if step["terminated"][env] or step["truncated"][env]:
                value, known = 0.0, bool(step["terminated"][env])
            value = step["reward_t"][env] + discount * value
            expected[int(step["observation_t"][env, 0])] = value if known else -np.inf
    return expected
