"""What a call is made of: arrays that fit together, the optional parts, the problem, and the way back to it."""
