"""Train a double DQN on any Gymnasium environment with discrete actions.

python -m train_scripts.train_dqn --env CartPole-v1
python -m train_scripts.train_dqn --env MiniGrid-KeyCorridorS3R1-v0
python -m train_scripts.train_dqn --env MiniGrid-MemoryS7-v0 --actions 0 1 2 --max-steps 100
python -m train_scripts.train_dqn --env my_module:MyEnv-v0   # my_module.py registers MyEnv-v0
"""

import rrl_tf
from rrl_tf.agents.config import DQNConfig as Config
from train_scripts import command_line


def main(config: Config):
    """Train a double DQN on any Gymnasium environment. Repeat the command to resume the run."""
    agent = rrl_tf.DQN.from_config(config)
    agent.learn(config.steps)
    return agent.run, agent.agent


if __name__ == "__main__":
    command_line.run(main, Config)
