"""What a start needs besides weights and KV cache: activations, what is outside torch, CUDA graphs."""
