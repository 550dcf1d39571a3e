"""Data sets and generators: numpy in, numpy or `tf.data` out."""
