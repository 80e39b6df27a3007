"""Device memory: blocks, suballocation, buffers and transfers."""
