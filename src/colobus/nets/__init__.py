"""Networks: a torso that encodes stacks of frames, and heads on its hidden layer."""
