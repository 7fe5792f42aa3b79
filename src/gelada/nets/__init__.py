"""Networks: a torso that looks at stacks of frames, and linear heads."""
