"""Ways round faults of drivers, a pass for each: last in the pipeline, and only where `runtime/quirks.py` names the fault."""
