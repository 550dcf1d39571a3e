"""Train one agent in a separate process until it solves a task, and record its CPU time.

`benchmarks.speed.time_to_solve` starts these modules. All count CPU time from the start of the
process, and evaluate in the same way:

    trial      tasks, evaluation, CPU time and results; imports neither Keras nor PyTorch
    ours       agents of this library
    sb3        Stable-Baselines3 and sb3-contrib
    lstm_ppo   PPO with an LSTM in one file, after CleanRL
"""
