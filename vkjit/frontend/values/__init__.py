"""Values during lowering: scalars, vectors, structs, arrays, and the operations on them."""
