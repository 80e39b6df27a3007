"""Generation of test cases (arguments for a kernel): random ones by hypothesis strategies, and fixed, directed ones."""
