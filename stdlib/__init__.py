"""The standard library of GPU kernels, written in vkjit's kernel language, with the host functions that launch them.

The sources lie beside the package, but must be imported as `vkjit.stdlib`. Imported as `stdlib`, every kernel would
exist twice, under two identities in the caches.

Most kernels are declared with `debug=False`, which leaves out bounds checks even in debug mode and on CPUs. Their
indices are in range by construction, or the kernels check them. Assertions report failures nevertheless.
"""

from __future__ import annotations

if __name__ != "vkjit.stdlib":
    raise ImportError(f"the standard library was imported as {__name__!r}; import it as 'vkjit.stdlib'")
