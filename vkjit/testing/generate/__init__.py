"""Generation of test cases: strategies for types, sizes and values, and directed cases."""
