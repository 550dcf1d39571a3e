"""Analysis of trained networks: traces, attention, faithfulness, memory."""
