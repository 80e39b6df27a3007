"""Operations against PyTorch where tensors lie anywhere in memory and calls come again."""
