"""What a classifier of digits attends to, and the digits it gets wrong."""


def one_of_each(images, labels):
    """The first image of every class."""
    first = [int((labels == label).argmax()) for label in range(10)]
    return images[first], labels[first]


def images(model, images, labels):
    """TensorBoard's pictures."""
    return {}


def draw(model, images, labels, logits, figures):
    """Draws."""
    return []
