"""Autograd engine: switching recording on and off (`mode`), the tape (`tape`) and mixed precision (`autocast`)."""
