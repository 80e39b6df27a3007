"""Descriptions of kernels and device functions by their Python signatures (annotations, dimension strings), and the
launch signatures that kernels are compiled for.
"""
