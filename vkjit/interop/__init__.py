"""Interoperability with other array libraries: PyTorch (`torch`)."""
