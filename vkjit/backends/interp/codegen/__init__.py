"""Translation of IR into closures (threaded code) that run all invocations of a batch in lockstep."""
