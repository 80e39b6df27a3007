"""Values during lowering: scalars, vectors, structs, arrays and lazy slices; their typing, joins and attributes."""
