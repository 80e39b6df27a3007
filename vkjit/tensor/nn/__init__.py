"""Neural-network operations on tensors."""
