"""The worker: frontend, scheduler and sidecar of one prefill, decode or aggregated pod."""
