"""No models. Django sends `pre_migrate` only to applications that have this module."""
