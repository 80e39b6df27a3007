"""The standard library: kernels written in the language of vkjit, and nothing else.

It lies beside the package and is imported as `vkjit.stdlib`, under that name alone: imported as `stdlib`, every kernel
would exist twice, with two identities in the caches.
"""

from __future__ import annotations

if __name__ != "vkjit.stdlib":
    raise ImportError(f"the standard library was imported as {__name__!r}; import it as 'vkjit.stdlib'")
