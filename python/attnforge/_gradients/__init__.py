"""The gradients of attention(): by torch's autograd, and by themselves."""
