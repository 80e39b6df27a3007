"""Loss functions of neural networks: elementwise losses, cross entropy, NLL and CTC, with their gradients."""
