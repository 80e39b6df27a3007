"""Autograd engine: grad mode, tape and autocast."""
