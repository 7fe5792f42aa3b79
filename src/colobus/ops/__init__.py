"""Mathematics on tensors: returns, losses, optimizers and the flat parameter vector."""
