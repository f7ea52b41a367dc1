"""Typed, versioned, size-bounded messages: inside the pod, between workers, and NIXL notices."""
