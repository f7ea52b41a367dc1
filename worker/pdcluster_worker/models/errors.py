"""Why a model cannot be served. Raised at start, before the worker says ready.

ModelError               safe to show; names the source and what is wrong with it
  UnsupportedModel       an architecture, option or quantisation that we do not compute
"""


class ModelError(RuntimeError):
    """The source cannot be resolved, fetched, verified or read."""


class UnsupportedModel(ModelError):
    """The model is fine, but this build does not compute it; the message names the feature."""
