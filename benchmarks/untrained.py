"""Create agents of the training scripts with new weights, because speed does not depend on them."""

from rrl_tf.agents import make_agent
from train_scripts import train_box_world, train_doorkey


def double_dqn(training, **arguments):
    """Return task and agent of a configuration of `train_doorkey` or `train_box_world`.

    Args:
        training: configuration of the script.
        arguments: further arguments of the network.
    """
    script = train_box_world if isinstance(training, train_box_world.Config) else train_doorkey
    task = script.make_task(training)
    network = script.make_network(training, task, **arguments)
    return task, make_agent(task, network, training)
