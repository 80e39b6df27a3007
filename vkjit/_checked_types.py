"""The element types as type checkers see them in users' code: each is a type that anything has, and can be called.

So a parameter annotated as `vk.f32` takes literals and has literals as defaults, `x: vk.In[vk.f32, "N"]` has elements, and
`vk.f32(x)` and `vk.Vec[vk.f32, 2]` are valid. No single definition says that to both checkers: mypy takes a variable of
type Any for a type, and skips what is under `not MYPY`; pyright takes a class that a decorator makes Any, and skips what
is for another system. The module isn't imported at run time.
"""

import os
from typing import Any

MYPY = False

if os.name == "java":
    bf16: Any
    boolean: Any
    f16: Any
    f32: Any
    f64: Any
    i8: Any
    i16: Any
    i32: Any
    i64: Any
    index: Any
    u8: Any
    u16: Any
    u32: Any
    u64: Any
if not MYPY:

    def _any(cls: type) -> Any: ...

    @_any
    class bf16: ...

    @_any
    class boolean: ...

    @_any
    class f16: ...

    @_any
    class f32: ...

    @_any
    class f64: ...

    @_any
    class i8: ...

    @_any
    class i16: ...

    @_any
    class i32: ...

    @_any
    class i64: ...

    @_any
    class index: ...

    @_any
    class u8: ...

    @_any
    class u16: ...

    @_any
    class u32: ...

    @_any
    class u64: ...
